package pgdev

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

const (
	packageScope   = "@embedded-postgres/"
	packageVersion = "17.10.0-beta.17"
	packageTimeout = 5 * time.Minute
	packageMax     = 100 << 20 // bytes; the packages have 23 MB
)

// packageSums are the SHA-512 sums that npm publishes as dist.integrity, by the platform's name in the package's.
var packageSums = map[string]string{
	"linux-x64":    "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg==",
	"linux-arm64":  "mC+bQvaBEf0WDD0nPWW3eGUXDUVzoyCzMtgl+Fw6Jy9DkQFK+jcPtzkzqhhrS/fGzn5telNpKInl8xPqDh71Ig==",
	"darwin-x64":   "gXk65MIyttD/PWo6NDSmu/n4vzPcqZQmxVWjEKuecwlyGmWO984AZ3Ljb7F0bwPvXhqcovH4FGN4ydr0fGeJxg==",
	"darwin-arm64": "E2dxhSllrcyAJBHuvgTrBTx2BaPlX2vvjXClPKHxfwBezk+nTZ01uAEraKiRJMpzHSCyN8J1dTjKh4q/uTsBLQ==",
}

// fromPackage uses the cached package, or has npm fetch it, where npm is installed.
func fromPackage(ctx context.Context, a account) (programs, error) {
	platform := platformName()
	if packageSums[platform] == "" {
		return programs{}, nil
	}
	cache, err := cacheFolder(a)
	if err != nil {
		return programs{}, err
	}
	installed := filepath.Join(cache, platform+"-"+packageVersion)
	if p := packagePrograms(installed); holdsPrograms(p.bin) {
		return p, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return programs{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, packageTimeout)
	defer cancel()
	if err := install(ctx, npm, platform, installed); err != nil {
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

// cacheFolder is a folder of ours in the user's cache, or, where the server's user cannot get there (for root's it
// cannot), in the machine's. Nobody else may write to it, because what is in it is run.
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

// install fetches the package, checks it, and unpacks it beside its final place, which it gets by a rename: a
// concurrent or broken install leaves a whole one or none.
func install(ctx context.Context, npm, platform, installed string) (err error) {
	removeBroken(filepath.Dir(installed))
	work, err := os.MkdirTemp(filepath.Dir(installed), newPrefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	archive, err := fetch(ctx, npm, platform, work)
	if err != nil {
		return err
	}
	unpacked := filepath.Join(work, "unpacked")
	if err := unpack(archive, unpacked); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	err = os.Rename(unpacked, installed)
	if holdsPrograms(packagePrograms(installed).bin) {
		return nil // ours, or that of somebody who was faster
	}
	return err
}

const newPrefix = ".new-"

// removeBroken removes what installs left that were killed: they take minutes at most.
func removeBroken(cache string) {
	folders, _ := filepath.Glob(filepath.Join(cache, newPrefix+"*")) // the pattern is well-formed
	for _, folder := range folders {
		if info, err := os.Lstat(folder); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(folder) // what cannot be removed stays for the next time
		}
	}
}

// fetch returns the package, which has the pinned sum.
func fetch(ctx context.Context, npm, platform, work string) ([]byte, error) {
	name := packageScope + platform + "@" + packageVersion
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
	archive, err := readAtMost(archives[0], packageMax)
	if err != nil {
		return nil, err
	}
	return archive, checkSum(name, archive, packageSums[platform])
}

func readAtMost(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(f, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%s has more than %d bytes", filepath.Base(path), limit)
	}
	return b.Bytes(), err
}

func checkSum(name string, archive []byte, want string) error {
	sum := sha512.Sum512(archive)
	got := base64.StdEncoding.EncodeToString(sum[:])
	if got != want {
		return fmt.Errorf("%s has the wrong checksum: sha512-%s, want sha512-%s", name, got, want)
	}
	return nil
}
