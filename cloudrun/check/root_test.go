package main

import (
	"debug/elf"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// The programs that the Dockerfile builds need nothing in a container except
// the manifest's environment and the database's socket, and write no files
// there.
func TestEmptyRoot(t *testing.T) {
	c := newContainer(t)
	staticPrograms(t, c.root)
	before := written(t, c.root)
	version := c.start(nil, "holdfast", "version")
	version.wait(time.Minute)
	if !strings.Contains(version.stdout.String(), testVersion) {
		t.Errorf("holdfast version prints %q, want VERSION, %s", &version.stdout, testVersion)
	}
	for _, name := range jobs(c) {
		p := c.startUnit(name)
		p.wait(time.Minute)
		if !strings.HasPrefix(p.stdout.String(), `{"job":"`+name+`"`) {
			t.Errorf("the job %s prints %q, want its report", name, &p.stdout)
		}
	}
	// A time zone needs no file of the image.
	zone := c.start(map[string]string{"DATABASE_URL": c.url, "SWEEP_SCHEDULE": "CRON_TZ=Europe/Paris 30 4 * * *"}, "oneshot", "sweep")
	zone.wait(time.Minute)
	for _, name := range []string{"api", "worker"} {
		p := c.startUnit(name)
		ready := p.ready(c.units[name])
		p.terminate()
		note("%s: ready after %s, ended %s after SIGTERM", name, ready.Round(time.Millisecond), p.stopped().Round(time.Millisecond))
	}
	if after := written(t, c.root); after != before {
		t.Errorf("the root was written to; it was\n%sand is\n%s", before, after)
	}
}

// jobs returns the manifests of jobs, in an order in which they can run on an
// empty database.
func jobs(c *container) []string {
	names := []string{"migrate"}
	for name, u := range c.units {
		if u.kind == "Job" && name != "migrate" {
			names = append(names, name)
		}
	}
	slices.Sort(names[1:])
	return names
}

// staticPrograms fails the test for programs that need a loader or a library,
// and logs their sizes.
func staticPrograms(t *testing.T, folder string) {
	t.Helper()
	total := int64(0)
	for _, name := range []string{"api", "worker", "oneshot", "holdfast"} {
		file := filepath.Join(folder, name)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
		note("%s: %.1f MB", name, float64(info.Size())/1e6)
		if runtime.GOOS != "linux" {
			note("NOT CHECKED: the image has no program for %s", runtime.GOOS)
			continue
		}
		program, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s is not static: it names a loader", name)
		}
		if libraries, err := program.ImportedLibraries(); err == nil && len(libraries) > 0 {
			t.Errorf("%s is not static: it needs %v", name, libraries)
		}
		_ = program.Close()
	}
	note("the image: %.1f MB", float64(total)/1e6)
}

// written lists the files under a folder, with the time of their last change.
func written(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		_, err = all.WriteString(strings.TrimPrefix(name, root) + "\t" + info.Mode().String() + "\t" + info.ModTime().String() + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
