package pgtest

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/migrations"
)

func TestNewIsMigratedAndApart(t *testing.T) {
	t.Parallel()
	one, other := New(t), New(t)
	for _, db := range []*pgxpool.Pool{one, other} {
		if pending, err := migrations.Pending(t.Context(), db, nil); err != nil || pending {
			t.Errorf("pending: %t, %v; want a migrated database", pending, err)
		}
	}
	if _, err := one.Exec(t.Context(), "DELETE FROM lane_slots"); err != nil {
		t.Fatal(err)
	}
	if n := Int(t, other, "SELECT count(*) FROM lane_slots"); n == 0 {
		t.Error("one test deletes another's rows")
	}
	if got := one.Config().MaxConns; got != poolSize {
		t.Errorf("the pool has up to %d connections, want %d", got, poolSize)
	}
}

// With PG_MAJOR the tests run on that version only.
func TestServersVersion(t *testing.T) {
	t.Parallel()
	var major int
	if err := New(t).QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int / 10000").Scan(&major); err != nil {
		t.Fatal(err)
	}
	if want := os.Getenv("PG_MAJOR"); want != "" && want != strconv.Itoa(major) {
		t.Errorf("the tests run on Postgres %d, want %s", major, want)
	}
}

func TestDatabaseGoesWithItsTest(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("a test", func(t *testing.T) {
		address := URL(t)
		name = address[strings.LastIndex(address, "/")+1:]
		name, _, _ = strings.Cut(name, "?")
		conn, err := pgx.Connect(t.Context(), address) // and stays connected
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		if _, err := conn.Exec(t.Context(), "SELECT FROM lane_slots"); err != nil {
			t.Fatal(err)
		}
	})
	if exists(t, mustServer(t), name) {
		t.Errorf("%s is still there", name)
	}
}

// recorder records that a test failed, and does not fail the real test.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestKeptConnectionFailsTheTest(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), URL(t))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{TB: t}
	closePool(r, pool, time.Millisecond)
	if !r.failed {
		t.Error("a connection that was not released went unnoticed")
	}
	kept.Release()
}

// A process that dies leaves its databases. The next one drops them, and no
// process drops the databases of a running one.
func TestOrphansAreDropped(t *testing.T) {
	t.Parallel()
	living := mustServer(t)
	kept, err := living.clone(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dead := another(t, living)
	orphan, err := dead.clone(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	die(t, dead, living)
	runtime.GC() // the connection with the living process's lock must survive this
	runtime.GC()
	another(t, living).close(t.Context())
	if exists(t, living, orphan) {
		t.Error("the dead process's database is still there")
	}
	if !exists(t, living, kept) {
		t.Error("the living process's database was dropped")
	}
	if err := living.drop(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
}

func TestManyProcessesMakeOneTemplate(t *testing.T) {
	t.Parallel()
	private := StartServer(t, pgdev.Options{})
	s, err := open(t.Context(), private.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close(context.Background())
	if err := s.drop(t.Context(), s.template); err != nil {
		t.Fatal(err)
	}
	processes := make([]*server, 4)
	var group errgroup.Group
	for i := range processes {
		group.Go(func() (err error) {
			processes[i], err = open(t.Context(), private.URL([]string{"postgres", "template1"}[i%2])) // a lock in one database is not visible in another
			if err == nil {
				_, err = processes[i].clone(t.Context())
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		die(t, process, s)
	}
	if err := s.dropOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := Int(t, s.admin, "SELECT count(*) FROM pg_database WHERE starts_with(datname, 'holdfast_')"); n != 1 {
		t.Errorf("%d databases, want the one template", n)
	}
}

func TestAddressMustBeAURL(t *testing.T) {
	t.Parallel()
	if _, err := open(t.Context(), "host=localhost dbname=postgres"); err == nil {
		t.Error("a keyword string was accepted")
	}
}

func mustServer(t *testing.T) *server {
	t.Helper()
	s, err := theServer()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// another is what a second process would have for the same server.
func another(t *testing.T, of *server) *server {
	t.Helper()
	s, err := open(t.Context(), of.url("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// die closes the process's connections and waits until the server has noticed.
func die(t *testing.T, process, witness *server) {
	t.Helper()
	process.close(t.Context())
	const markedSQL = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1 AND objid = $2`
	Until(t, "the server has noticed", func() bool {
		return Int(t, witness.admin, markedSQL, uint32(ownerLocks), process.owner) == 0
	})
}

func exists(t *testing.T, s *server, database string) bool {
	t.Helper()
	return Int(t, s.admin, "SELECT count(*) FROM pg_database WHERE datname = $1", database) > 0
}
