package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const holdfastModule = "github.com/holdfast/holdfast"

// programs builds cmd/api, cmd/worker and cmd/holdfast once per run and returns
// the folder they are in.
func (b *bench) programs(ctx context.Context) (string, error) {
	if b.built != "" {
		return b.built, nil
	}
	dir, err := os.MkdirTemp("", "hfbench-")
	if err != nil {
		return "", err
	}
	b.built = dir
	b.progress("building the programs")
	// The programs' dependencies are in their module; this one lists those of
	// the benchmark only.
	home, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", holdfastModule).Output()
	if err != nil {
		return "", fmt.Errorf("find the module of the programs (from inside the repository): %w", err)
	}
	args := []string{"build", "-C", strings.TrimSpace(string(home)), "-o", dir + string(filepath.Separator)}
	if hasRaceDetector() { // a test that has it shares what was compiled for the others
		args = append(args, "-race")
	}
	if b.profile != "" {
		args = append(args, "-tags", "profile")
	}
	build := exec.CommandContext(ctx, "go", append(args, "./cmd/api", "./cmd/worker", "./cmd/holdfast")...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return dir, nil
}

func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// process is a program that serves on the loopback interface.
type process struct {
	address string
	cmd     *exec.Cmd
	ended   chan struct{}
}

const (
	startWithin = 2 * time.Minute
	stopWithin  = 15 * time.Second
)

// spawn starts a program that will serve at address, and waits until it reports
// that it is ready.
func (b *bench) spawn(ctx context.Context, address string, env []string, path string, args ...string) (*process, error) {
	p := &process{address: address, ended: make(chan struct{})}
	p.cmd = exec.Command(path, args...) //nolint:noctx // stop ends it
	p.cmd.Env = env
	p.cmd.Dir = b.profile                                   // this one's if empty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for us, who stop it in order
	log := io.Discard
	if b.verbose {
		log = b.stderr
	}
	tail := &lastLine{to: log}
	p.cmd.Stdout, p.cmd.Stderr = tail, tail
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go func() {
		_ = p.cmd.Wait() // stop does not ask how
		close(p.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := p.ready(ctx); err != nil {
		p.stop()
		return nil, fmt.Errorf("%s is not ready: %w; its last output: %s", filepath.Base(path), err, tail)
	}
	return p, nil
}

func (p *process) ready(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stop ends the program by SIGTERM, or by SIGKILL if that takes too long.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(stopWithin):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// peakMemory is the highest resident memory of the program, in MiB; 0 on a
// system that does not report it.
func (p *process) peakMemory() float64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err == nil {
				return kilobytes / 1024
			}
		}
	}
	return 0
}

// freeAddress is a port of the loopback interface that no process uses now.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }() // nothing was accepted
	return l.Addr().String(), nil
}

// lastLine passes on what is written and keeps the last of it.
type lastLine struct {
	to   io.Writer
	last string
}

// Write is called by one goroutine at a time, os/exec's.
func (l *lastLine) Write(p []byte) (int, error) {
	l.last = string(p)
	return l.to.Write(p)
}

func (l *lastLine) String() string { return strings.TrimSpace(l.last) }

// memory is the machine's memory in MiB; 4096 on a system that does not report
// it.
func memory() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 4096
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if _, err := fmt.Sscanf(line, "MemTotal: %d kB", &kib); err == nil {
			return kib / 1024
		}
	}
	return 4096
}
