package stage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/chaos/stage"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// script is a program that runs a few lines of shell.
func script(t *testing.T, lines string, exited func(stage.Exit)) *stage.Program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := stage.NewProgram("script", "127.0.0.1:0", path, nil, exited)
	pgtest.Must(t, p.Start())
	t.Cleanup(func() { pgtest.Must(t, p.Close()) })
	return p
}

// An unexpected exit is reported with the program's last lines, and the program
// is started again.
func TestReportsEnds(t *testing.T) {
	t.Parallel()
	exits := make(chan stage.Exit, 10)
	p := script(t, `echo '{"level":"INFO","msg":"begins"}'; echo "panic: all is lost" >&2; exit 3`, func(e stage.Exit) { exits <- e })
	for range 2 {
		e := <-exits
		if e.Code != 3 || !strings.Contains(e.String(), "all is lost") || e.Program != "script" {
			t.Errorf("%+v", e)
		}
	}
	v := p.Log.Volume()
	if v.Counts["INFO  begins"] < 2 || len(v.Alarms) < 2 || p.Starts() < 2 {
		t.Errorf("%d starts, logged %+v", p.Starts(), v)
	}
}

// An exit that was requested is not reported, and its code and duration are
// returned.
func TestStopsOnRequest(t *testing.T) {
	t.Parallel()
	exits := make(chan stage.Exit, 10)
	p := script(t, `trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done`, func(e stage.Exit) { exits <- e })
	written(t, p)
	stopped, err := p.Stop()
	pgtest.Must(t, err)
	if stopped.Code != 7 || stopped.Late {
		t.Errorf("%+v", stopped)
	}
	pgtest.Must(t, p.Start())
	pgtest.Must(t, p.Kill())
	other := filepath.Join(t.TempDir(), "other")
	pgtest.Must(t, os.WriteFile(other, []byte("#!/bin/sh\ntrap 'exit 8' TERM; echo '{\"msg\":\"another\"}'; while :; do sleep 0.05; done\n"), 0o700))
	p.Use(other)
	pgtest.Must(t, p.Start())
	pgtest.Until(t, "the other program runs", func() bool { return p.Log.Volume().Counts["another"] == 1 })
	stopped, err = p.Stop()
	pgtest.Must(t, err)
	if stopped.Code != 8 {
		t.Errorf("%+v, want the end of the other program", stopped)
	}
	if diff := cmp.Diff(3, p.Starts()); diff != "" {
		t.Errorf("starts (-want +got):\n%s", diff)
	}
	select {
	case e := <-exits:
		t.Errorf("it was reported: %s", e)
	default:
	}
}

// A frozen program is down until it is thawed, and so is a dead one until it is
// started.
func TestKnowsWhenItWasDown(t *testing.T) {
	t.Parallel()
	p := script(t, `echo ready; while :; do sleep 0.05; done`, func(stage.Exit) {})
	written(t, p)
	began := time.Now()
	if down := p.Down(began, time.Now()); down != 0 {
		t.Errorf("down for %s before any fault", down)
	}
	if frozen, err := p.Freeze(); err != nil || !frozen {
		t.Fatal(frozen, err)
	}
	from := time.Now()
	to := from.Add(time.Hour)
	if down := p.Down(from, to); down != time.Hour {
		t.Errorf("frozen for %s of one hour", down)
	}
	if _, err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	thawed := time.Now()
	if down := p.Down(thawed, to); down != 0 {
		t.Errorf("down for %s after it was thawed", down)
	}
	pgtest.Must(t, p.Kill())
	if down := p.Down(to, to.Add(time.Second)); down != time.Second {
		t.Errorf("dead for %s of one second", down)
	}
}

// written waits for the program's first line.
func written(t *testing.T, p *stage.Program) {
	t.Helper()
	pgtest.Until(t, "the program writes", func() bool { return p.Log.Volume().Lines > 0 })
}
