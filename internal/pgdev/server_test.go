//go:build unix

package pgdev

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// start starts a server. If it still runs when the test ends, it is stopped.
func start(t *testing.T, opts Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its server may have ended
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func setting(t *testing.T, conn *pgx.Conn, name string) (value string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestStart(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Log: t.Output(), Settings: map[string]string{"work_mem": "7MB"}})
	for name, address := range map[string]string{"TCP": s.URL("postgres"), "socket": s.SocketURL("postgres")} {
		conn := connect(t, address)
		got := map[string]string{}
		want := map[string]string{
			"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "jit": "off", "autovacuum": "on",
			"server_encoding": "UTF8", "TimeZone": "UTC", "listen_addresses": "127.0.0.1",
			"password_encryption": "scram-sha-256", "work_mem": "7MB",
		}
		for name := range want {
			got[name] = setting(t, conn, name)
		}
		var collation string
		if err := conn.QueryRow(t.Context(), "SELECT datcollate FROM pg_database WHERE datname = current_database()").Scan(&collation); err != nil {
			t.Fatal(err)
		}
		got["collation"], want["collation"] = collation, "C"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("settings over %s (-want +got):\n%s", name, diff)
		}
	}
	select {
	case <-s.Done():
		t.Error("the server is done before Stop")
	default:
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if _, err := os.Stat(s.home.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stop left %s: %v", s.home.dir, err)
	}
	if _, err := pgx.Connect(t.Context(), s.URL("postgres")); err == nil {
		t.Error("the server answers after Stop")
	}
}

// Without room in memory the server starts on a disk.
func TestInMemory(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		s := start(t, Options{InMemory: asked})
		if in, want := filepath.Dir(s.home.dir) == memoryParent, asked && hasMemory(memoryParent); in != want {
			t.Errorf("asked for memory: %t, and the data is in %s", asked, s.home.data)
		}
		if got := setting(t, connect(t, s.URL("postgres")), "fsync"); got != "on" {
			t.Errorf("fsync is %s", got)
		}
	}
	if hasMemory("/proc") || hasMemory("/nowhere") {
		t.Error("a folder that is not in memory is taken for one")
	}
}

func TestPasswordIsRequired(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	for _, address := range []string{s.URL("postgres"), s.SocketURL("postgres")} {
		for _, password := range []string{"", "postgres"} {
			u, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(superuser, password)
			conn, err := pgx.Connect(t.Context(), u.String())
			if err == nil {
				_ = conn.Close(t.Context())
				t.Errorf("%s lets in the password %q", u.Redacted(), password)
			}
		}
	}
}

func TestReservedSettings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"port", "Listen_Addresses", "unix_socket_directories"} {
		_, err := Start(t.Context(), Options{Settings: map[string]string{name: "1"}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("setting %s: %v, want an error that names it", name, err)
		}
	}
}

func TestBadSettingIsExplained(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Settings: map[string]string{"shared_buffers": "lots"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("got %v, want the message of Postgres about the setting", err)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an error that the context was cancelled", err)
	}
}

// keptDir is a folder that the user of the server can reach, which t.TempDir is
// not for root.
func keptDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hfkept-") //nolint:usetesting // t.TempDir is closed to all but its owner, who may be root
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "made")
}

func TestKeptData(t *testing.T) {
	t.Parallel()
	dir := keptDir(t)
	first := start(t, Options{Dir: dir})
	execute(t, connect(t, first.URL("postgres")), "CREATE TABLE kept AS SELECT 1 AS n")

	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another process runs a server on "+dir) {
		t.Errorf("a second server on the data: %v, want a refusal", err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := start(t, Options{Dir: dir})
	conn := connect(t, second.URL("postgres"))
	execute(t, conn, "INSERT INTO kept VALUES (2)")

	// A crash: the next start has all that was committed, although
	// postmaster.pid and perhaps a child are left over.
	if err := syscall.Kill(second.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-second.Done()
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	var sum int
	third := start(t, Options{Dir: dir})
	if err := connect(t, third.URL("postgres")).QueryRow(t.Context(), "SELECT sum(n) FROM kept").Scan(&sum); err != nil {
		t.Fatal(err)
	}
	if sum != 3 {
		t.Errorf("the rows sum up to %d, want 3", sum)
	}
	if err := third.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, dataName, "PG_VERSION"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := dir + ": the data was made by Postgres 99, which only that version can read"
	if asked := os.Getenv("PG_MAJOR"); asked != "" {
		want = "PG_MAJOR asks for Postgres " + asked + ", and the data was made by 99"
	}
	_, err := Start(t.Context(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("data of a version that is not installed: %v, want a refusal", err)
	}
}

func TestForeignClusterIsRefused(t *testing.T) {
	t.Parallel()
	dir := keptDir(t)
	s := start(t, Options{Dir: dir})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, passwordName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "made by another program") {
		t.Errorf("got %v, want a refusal", err)
	}
}

// Another postmaster on the data was started by hand, without the folder's
// lock.
func TestForeignServerIsRefused(t *testing.T) {
	t.Parallel()
	dir := keptDir(t)
	s := start(t, Options{Dir: dir})
	h := &home{account: s.home.account, kept: dir, data: filepath.Join(dir, dataName), launchesLeft: 0}
	if err := h.makeTemporary(false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if h.watcher, err = startWatcher(h.dir, filepath.Join(h.dir, "none")); err != nil {
		t.Fatal(err)
	}
	p, err := finder{}.find(t.Context(), h.account)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := startIn(ctx, h, p, Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another Postgres runs on "+dir) {
		t.Errorf("got %v, want a refusal", err)
	}
}
