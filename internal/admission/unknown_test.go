package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
)

// cut is the point at which the connection to the database breaks when a commit
// is sent. Here a commit is the batch of a group, at whose end the server
// commits.
type cut int

const (
	before  cut = iota // it does not arrive
	unheard            // it arrives and is answered; the answer does not arrive
	midway             // it arrives, and the connection is closed before the answer
	adrift             // like midway, and the cancel request does not arrive
)

// cancelCode is the beginning of a cancel request: its length and its code.
var cancelCode = []byte{0, 0, 0, 16, 4, 210, 22, 46}

// wire is a proxy of the database that breaks connections on purpose.
type wire struct {
	listener net.Listener
	network  string
	address  string
	mark     string // a text that only commits contain
	how      cut
	left     atomic.Int64 // how many commits are still to be cut
	open     sync.WaitGroup
}

// newWire returns a pool whose connections use the proxy. The mark is the
// variant, which only the insert of a group contains.
func newWire(t *testing.T, b *testkit.Fixture, how cut, times int64) (*pgxpool.Pool, *wire) {
	t.Helper()
	return newWireAt(t, b, "shoe", how, times)
}

func newWireAt(t *testing.T, b *testkit.Fixture, mark string, how cut, times int64) (*pgxpool.Pool, *wire) {
	t.Helper()
	config := b.DB.Config()
	network, address := config.ConnConfig.Host, strconv.Itoa(int(config.ConnConfig.Port))
	address = net.JoinHostPort(network, address)
	if network[0] == '/' {
		network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.ConnConfig.Host, config.ConnConfig.Port)
	} else {
		network = "tcp"
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	pgtest.Must(t, err)
	w := &wire{listener: listener, network: network, address: address, mark: mark, how: how}
	w.left.Store(times)
	w.open.Go(w.serve)
	config.ConnConfig.Host, config.ConnConfig.Port = "127.0.0.1", uint16(listener.Addr().(*net.TCPAddr).Port)
	config.ConnConfig.Fallbacks = nil
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	t.Cleanup(func() {
		db.Close()
		_ = listener.Close()
		w.open.Wait()
	})
	return db, w
}

func (w *wire) serve() {
	for {
		caller, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), w.network, w.address)
		if err != nil {
			_ = caller.Close()
			continue
		}
		p := &pair{caller: caller, server: server}
		w.open.Go(func() { w.forth(p) })
		w.open.Go(p.back)
	}
}

// pair is one connection through the proxy.
type pair struct {
	caller, server net.Conn
	discarding     atomic.Bool // the server's next answers are not forwarded
}

func (p *pair) close() {
	_ = p.caller.Close()
	_ = p.server.Close()
}

// forth forwards the caller's messages until a commit is cut.
func (w *wire) forth(p *pair) {
	piece := make([]byte, 1<<16)
	for {
		n, err := p.caller.Read(piece)
		if err != nil {
			p.close()
			return
		}
		cutting := bytes.Contains(piece[:n], []byte(w.mark)) && w.left.Add(-1) >= 0
		switch {
		case cutting && w.how == before:
			p.close()
			return
		case cutting && w.how == unheard:
			p.discarding.Store(true)
		case w.how == adrift && bytes.HasPrefix(piece[:n], cancelCode):
			p.close()
			return
		case cutting && (w.how == midway || w.how == adrift):
			_, _ = p.server.Write(piece[:n])
			p.close()
			return
		}
		if _, err := p.server.Write(piece[:n]); err != nil {
			p.close()
			return
		}
	}
}

// back forwards the server's messages until the pair discards them.
func (p *pair) back() {
	defer p.close()
	piece := make([]byte, 1<<16)
	for {
		n, err := p.server.Read(piece)
		if err != nil || p.discarding.Load() {
			return
		}
		if _, err := p.caller.Write(piece[:n]); err != nil {
			return
		}
	}
}

// The connection breaks while a group is committed, once or repeatedly. No
// request has two effects, and every request in an answer exists. A caller
// without an answer receives the outcome by calling again.
func TestCommitOfUnknownFate(t *testing.T) {
	t.Parallel()
	for _, how := range []cut{before, unheard, midway} {
		for _, times := range []int64{1, 2, 3} {
			t.Run(fmt.Sprintf("cut %d, %d times", how, times), func(t *testing.T) {
				t.Parallel()
				b := newNormal(t)
				db, _ := newWire(t, b, how, times)
				through := *b
				through.DB = db
				c := gather(t, &through, admission.IntakeConfig{Committers: 1}, []requestrows.Submission{add("a", "shoe", "key-1"), add("b", "shoe", ""), add("c", "shoe", "key-2")})
				answers := c.run()
				known := 0
				for i, a := range answers {
					if a.err == nil {
						known++
						if v := b.Get(a.request); v.CartID != []string{"a", "b", "c"}[i] {
							t.Errorf("caller %d received %+v", i, v)
						}
					} else if !pg.IsOutage(a.err) {
						t.Errorf("caller %d: %v, want an outage", i, a.err)
					}
				}
				if times < 3 && known != 3 {
					t.Errorf("%d of 3 were answered, although a later try succeeded", known)
				}
				in := b.Intake(admission.IntakeConfig{})
				for i, key := range map[int]string{0: "key-1", 2: "key-2"} {
					s := add(answers[i].request.CartID, "shoe", key)
					s.TenantID, s.CartID = b.Tenant, []string{"a", "", "c"}[i]
					again, err := in.Submit(t.Context(), s)
					if err != nil || (answers[i].err == nil && again.RequestID != answers[i].request.RequestID) {
						t.Errorf("caller %d, again: %+v, %v", i, again, err)
					}
				}
				for _, cart := range []string{"a", "b", "c"} {
					n := b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = $1`, cart)
					if n > 1 || (n == 0 && (cart != "b" || known == 3)) {
						t.Errorf("cart %s has %d rows", cart, n)
					}
				}
			})
		}
	}
}

// newGate makes every commit of an admission wait until the gate is rolled
// back, whatever the lock_timeout of the connection.
func newGate(t *testing.T, b *testkit.Fixture) pgx.Tx {
	t.Helper()
	b.Exec(`CREATE FUNCTION wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock(1); RETURN NULL; END $$`)
	b.Exec(`CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON reservation_requests DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION wait_at_the_gate()`)
	return b.Lock(`SELECT pg_advisory_xact_lock(1)`)
}

// The answer to a first attempt is lost. A later attempt can only wait for the
// first one, until lock_timeout ends the wait. Then no caller may receive an
// error that means that nothing was written, because the first attempt will
// commit.
func TestUnknownFateStaysUnknown(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint("a group of ", members), func(t *testing.T) {
			t.Parallel()
			b := newNormal(t)
			gate := newGate(t, b)
			db, _ := newWire(t, b.With("lock_timeout", "50ms"), adrift, 1)
			through := *b
			through.DB = db
			var submissions []requestrows.Submission
			for i := range members {
				submissions = append(submissions, add(fmt.Sprint("cart-", i), "shoe", fmt.Sprint("key-", i)))
			}
			c := gather(t, &through, admission.IntakeConfig{Committers: 1, CommitTimeout: time.Second}, submissions)
			for i, a := range c.run() {
				if !pg.IsOutage(a.err) || pg.IsRetryable(a.err) {
					t.Errorf("caller %d: %+v, %v, want an outage with an unknown outcome", i, a.request, a.err)
				}
			}
			pgtest.Must(t, gate.Rollback(t.Context()))
			pgtest.Until(t, "the first attempt is committed", func() bool { return b.Int(`SELECT count(*) FROM reservation_requests`) == int64(members) })
		})
	}
}

// If a backend is terminated during a commit, it commits nothing. The next
// attempt admits the group.
func TestBackendEndedDuringCommit(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	gate := newGate(t, b)
	c := gather(t, b, admission.IntakeConfig{Committers: 1}, []requestrows.Submission{add("a", "shoe", ""), add("b", "shoe", "key")})
	over := make(chan []answer)
	go func() { over <- c.run() }()
	b.Blocked()
	const endSQL = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory' AND state = 'active'`
	if n := b.Int(endSQL); n != 1 {
		t.Fatalf("%d backends wait in a commit, want 1", n)
	}
	pgtest.Must(t, gate.Rollback(t.Context()))
	for i, a := range <-over {
		if a.err != nil {
			t.Errorf("caller %d: %v", i, a.err)
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}
