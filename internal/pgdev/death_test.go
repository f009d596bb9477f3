//go:build unix

package pgdev

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const parentName = "HOLDFAST_TEST_PGDEV_PARENT"

// TestParent is the process that TestServerDiesWithItsParent kills.
func TestParent(t *testing.T) {
	if os.Getenv(parentName) == "" {
		return
	}
	s, err := Start(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("server", s.URL("postgres"), s.home.dir)
	select {}
}

func TestServerDiesWithItsParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0], "-test.run=^TestParent$")
	parent.Env = append(os.Environ(), parentName+"=yes")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	address, dir := announced(t, out)
	conn := connect(t, address)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := conn.WaitForNotification(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("the session outlived its server's parent: %v", err)
	}
	waitRemoved(ctx, t, dir)
	if _, err := pgx.Connect(ctx, address); err == nil {
		t.Error("the server outlived its parent")
	}
}

func announced(t *testing.T, out io.Reader) (address, dir string) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "server" {
			return fields[1], fields[2]
		}
	}
	t.Fatalf("the parent printed no server: %v", lines.Err())
	return "", ""
}

func waitRemoved(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s was not removed", dir)
		case <-tick.C:
		}
	}
}

// The watcher alone, as on systems whose kernel sends no death signal: when the
// pipe ends, it ends the program whose id it received last, if the file has the
// same id, and no other.
func TestWatcher(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		confirmed bool
	}{"confirmed": {true}, "reused id": {false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "with space")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			program := exec.Command("sleep", "600")
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				_ = program.Wait() // the watcher or the clean-up killed it
				close(ended)
			}()
			t.Cleanup(func() { _ = program.Process.Kill(); <-ended })
			file := filepath.Join(dir, "postmaster.pid")
			recorded := program.Process.Pid
			if !c.confirmed {
				recorded = 1
			}
			if err := os.WriteFile(file, []byte(strconv.Itoa(recorded)+"\n"+dir+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			w, err := startWatcher(dir, file)
			if err != nil {
				t.Fatal(err)
			}
			w.add(1)
			w.add(program.Process.Pid)
			w.dismiss()
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the folder is still there: %v", err)
			}
			select {
			case <-ended:
				if !c.confirmed {
					t.Error("the watcher ended a program that is not the postmaster")
				}
			default:
				if c.confirmed {
					t.Error("the watcher did not end the program")
				}
			}
		})
	}
}

// A folder whose process has ended, and whose watcher was killed too, is
// removed by the next start. A folder in use is not.
func TestStaleFoldersAreRemoved(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	old := time.Now().Add(-time.Hour)
	folder := func(name string) string {
		dir := filepath.Join(parent, dirPattern+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, lockName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	stale, used, young := folder("stale"), folder("used"), folder("young")
	if err := os.Chtimes(young, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	h := &home{}
	if err := h.lock(filepath.Join(used, lockName)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.locks[0].Close() })
	removeStale(parent)
	for dir, want := range map[string]bool{stale: false, used: true, young: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %t", dir, err, want)
		}
	}
}
