package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// profileTop is how many functions a summary of a profile has.
const profileTop = 25

// profiled calls run, and between its beginning and its end takes the CPU
// profiles of the API and the worker. Afterwards it also writes the profiles of
// their heaps, and prints the functions at the top by the time that they and
// what they call took, by their own, and by what they have allocated since the
// start. Without -profile it only calls run.
//
// The programs are built with the tag profile then, and their working directory
// is the folder; see cmd/internal/boot/profile.go.
func (b *bench) profiled(ctx context.Context, f *deployment, run func() error) error {
	if b.profile == "" {
		return run()
	}
	toggle := func() {
		for _, p := range []*process{f.api, f.worker} {
			_ = p.cmd.Process.Signal(syscall.SIGUSR1) // if it has ended, no profile comes
		}
	}
	toggle()
	if err := run(); err != nil {
		return err
	}
	toggle()
	for _, p := range []*process{f.api, f.worker} {
		name := filepath.Join(b.profile, filepath.Base(p.cmd.Path))
		err := await(ctx, stopWithin, 50*time.Millisecond, func() (string, error) {
			if _, err := os.Stat(name + ".heap.pprof"); err != nil {
				return err.Error(), nil
			}
			return "", nil
		})
		if err != nil {
			return fmt.Errorf("take the profiles: %w", err)
		}
		for _, top := range [][]string{{"-cum", name + ".cpu.pprof"}, {name + ".cpu.pprof"}, {"-sample_index=alloc_space", name + ".heap.pprof"}} {
			if err := b.printTop(ctx, top...); err != nil {
				return err
			}
		}
	}
	return nil
}

// printTop prints the functions at the top of a profile.
func (b *bench) printTop(ctx context.Context, args ...string) error {
	all := append([]string{"tool", "pprof", "-top", fmt.Sprint("-nodecount=", profileTop)}, args...)
	top := exec.CommandContext(ctx, "go", all...)
	out, err := top.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(all, " "), err)
	}
	_, err = fmt.Fprintf(b.stderr, "\n%s\n%s", strings.Join(args, " "), out)
	return err
}

// prepareProfiles makes the folder of the profiles, without those of an earlier
// run.
func (o *options) prepareProfiles() (err error) {
	if o.profile, err = filepath.Abs(o.profile); err != nil {
		return err
	}
	if err := os.MkdirAll(o.profile, 0o750); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(o.profile, "*.pprof"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
