// Command dist builds the files of a release into a folder: for each platform an
// archive of the static programs and their bill of materials (CycloneDX), the
// OpenAPI document, the package of the TypeScript client, and SHA256SUMS. Two runs
// on one commit with the same versions of Go and npm give the same bytes.
//
// Usage, in the root of the repository:
//
//	dist -version 1.2.3 -time 1764000000 -out dist
package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// platforms are what the programs are built for, as GOOS/GOARCH.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

// programs are the commands of an archive. The last one is the operator's tool,
// which contains every module that the others do.
var programs = []string{"api", "worker", "oneshot", "holdfast"}

// documents are the other files of an archive.
var documents = []string{"LICENSE", "README.md", "CHANGELOG.md"}

const versionVariable = "github.com/holdfast/holdfast/cmd/internal/boot.Version"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var r release
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "the release, such as 1.2.3")
	flags.StringVar(&r.out, "out", "dist", "the folder, which is replaced")
	seconds := flags.Int64("time", 0, "when the files were changed last, in seconds since 1970")
	only := flags.String("platforms", strings.Join(platforms, ","), "what to build the programs for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := checkVersion(r.version); err != nil {
		return err
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return errors.New("the package of the TypeScript client needs Node.js 20 or newer with npm (https://nodejs.org/)")
	}
	r.changed = time.Unix(*seconds, 0).UTC()
	return r.make(ctx, strings.Split(*only, ","))
}

// versionForm is a semantic version with no leading v, such as 1.2.3-rc.1.
var versionForm = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func checkVersion(version string) error {
	if !versionForm.MatchString(version) {
		return fmt.Errorf("-version is %q, want a semantic version such as 1.2.3", version)
	}
	return nil
}

// release is one run.
type release struct {
	version, out string
	changed      time.Time
	work         string // a folder for what is no file of the release
}

func (r *release) make(ctx context.Context, platforms []string) (err error) {
	if r.work, err = os.MkdirTemp("", "holdfast-dist-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	inventory := filepath.Join(r.work, "cyclonedx-gomod")
	progress("building the tool for bills of materials")
	if err := r.command(ctx, "", nil, "go", "build", "-C", "tools/dist", "-o", inventory, "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod"); err != nil {
		return err
	}
	for _, p := range platforms {
		if err := r.platform(ctx, p, inventory); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	progress("the OpenAPI document")
	if err := r.openAPI(ctx); err != nil {
		return err
	}
	progress("the TypeScript client")
	if err := r.npm(ctx); err != nil {
		return err
	}
	sums, err := writeSums(r.out)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(sums)
	return err
}

// platform builds the programs for a platform and packs them.
func (r *release) platform(ctx context.Context, platform, inventory string) error {
	system, processor, ok := strings.Cut(platform, "/")
	if !ok {
		return errors.New("want GOOS/GOARCH, such as linux/amd64")
	}
	progress("the programs for " + platform)
	name := strings.Join([]string{"holdfast", r.version, system, processor}, "_")
	built := filepath.Join(r.work, name)
	build := append(goBuild(r.version), "-o", built+string(filepath.Separator))
	for _, p := range programs {
		build = append(build, "./cmd/"+p)
	}
	target := []string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + processor, "GOFLAGS="}
	if err := r.command(ctx, "", target, "go", build...); err != nil {
		return err
	}
	if err := checkModules(built); err != nil {
		return err
	}
	tool := filepath.Join(built, programs[len(programs)-1])
	if err := r.command(ctx, "", nil, inventory, "bin", "-json", "-std", "-noserial", "-notimestamp", "-version", "v"+r.version,
		"-output", filepath.Join(r.out, name+".cdx.json"), tool); err != nil {
		return err
	}
	files := make([]packed, 0, len(programs)+len(documents))
	for _, p := range programs {
		files = append(files, packed{from: filepath.Join(built, p), name: p, mode: 0o755})
	}
	for _, d := range documents {
		files = append(files, packed{from: d, name: d, mode: 0o644})
	}
	return writeArchive(filepath.Join(r.out, name+".tar.gz"), name, r.changed, files)
}

// goBuild are the arguments of the Go command, as in the Dockerfile.
func goBuild(version string) []string {
	return []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X " + versionVariable + "=" + version}
}

// checkModules fails if a program was built from a module that the operator's tool
// was not, because its bill of materials is for all of them.
func checkModules(built string) error {
	of := func(program string) ([]string, error) {
		info, err := buildinfo.ReadFile(filepath.Join(built, program))
		if err != nil {
			return nil, err
		}
		var modules []string
		for _, m := range info.Deps {
			m = cmp.Or(m.Replace, m)
			modules = append(modules, m.Path+" "+m.Version)
		}
		return modules, nil
	}
	tool := programs[len(programs)-1]
	listed, err := of(tool)
	if err != nil {
		return err
	}
	for _, p := range programs {
		modules, err := of(p)
		if err != nil {
			return err
		}
		for _, m := range modules {
			if !slices.Contains(listed, m) {
				return fmt.Errorf("%s contains %s and %s does not, so one bill of materials is not enough", p, m, tool)
			}
		}
	}
	return nil
}

// openAPI writes the document with the version of the release.
func (r *release) openAPI(ctx context.Context) error {
	tool := filepath.Join(r.work, "host", "holdfast")
	if err := r.command(ctx, "", []string{"CGO_ENABLED=0", "GOFLAGS="}, "go", append(goBuild(r.version), "-o", tool, "./cmd/holdfast")...); err != nil {
		return err
	}
	document, err := exec.CommandContext(ctx, tool, "openapi").Output()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "holdfast_"+r.version+"_openapi.json"), document, 0o644)
}

// npm packs the TypeScript client, whose package.json has the version.
func (r *release) npm(ctx context.Context) error {
	out, err := filepath.Abs(r.out)
	if err != nil {
		return err
	}
	client := filepath.Join("clients", "typescript")
	description, err := os.ReadFile(filepath.Join(client, "package.json"))
	if err != nil {
		return err
	}
	var p struct{ Version string }
	if err := json.Unmarshal(description, &p); err != nil {
		return err
	}
	if p.Version != r.version {
		return fmt.Errorf("%s has the version %s, not %s", filepath.Join(client, "package.json"), p.Version, r.version)
	}
	if err := r.command(ctx, client, nil, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"); err != nil {
		return err
	}
	return r.command(ctx, client, nil, "npm", "pack", "--silent", "--pack-destination", out)
}

// command runs a program in a folder. Its output is shown only if it fails.
func (r *release) command(ctx context.Context, folder string, environment []string, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = folder
	c.Env = append(os.Environ(), environment...)
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), args[0], err, output.Bytes())
	}
	return nil
}

func progress(what string) {
	fmt.Fprintln(os.Stderr, "dist:", what)
}
