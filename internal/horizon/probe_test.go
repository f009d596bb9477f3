package horizon_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/pgtest"
)

var probed = horizon.Numbers{Sequence: "numbers"}

// newNumbers makes a database with the sequence, and returns its URL.
func newNumbers(t *testing.T) string {
	t.Helper()
	address := pgtest.URL(t)
	if _, err := connect(t, address).Exec(t.Context(), `CREATE SEQUENCE numbers`); err != nil {
		t.Fatal(err)
	}
	return address
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func wantUnfit(t *testing.T, err error, reason string) {
	t.Helper()
	if _, is := errors.AsType[*horizon.UnfitError](err); !is || !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), "docs/scaling.md") {
		t.Errorf("%v, want the reason %q", err, reason)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	address := newNumbers(t)
	a, b := connect(t, address), connect(t, address)
	for range 2 { // a sequence that was never used, and one that was
		if err := horizon.ProbeConns(t.Context(), probed, a, b); err != nil {
			t.Error(err)
		}
	}
	// A transaction of another caller holds the horizon back, and its lock the
	// lowest number.
	tx, err := connect(t, address).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `SELECT `+horizon.EnterSequence+`, `+horizon.CurrentXID+` FROM numbers`)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := horizon.ProbeConns(t.Context(), probed, a, b); err != nil {
		t.Errorf("while another transaction runs: %v", err)
	}
}

// Two connections that lead to two servers share neither locks nor numbers.
func TestProbeOfTwoServers(t *testing.T) {
	t.Parallel()
	a, b := connect(t, newNumbers(t)), connect(t, newNumbers(t))
	wantUnfit(t, horizon.ProbeConns(t.Context(), probed, a, b), "advisory lock")
}

func TestRefusedByName(t *testing.T) {
	t.Parallel()
	for version, name := range map[string]string{
		"PostgreSQL 15.2-YB-2.25.1.0-b0 on x86_64-pc-linux-gnu":        "YugabyteDB",
		"CockroachDB CCL v25.2.0 (x86_64-pc-linux-gnu, built 2026/05)": "CockroachDB",
	} {
		wantUnfit(t, horizon.RefuseByName(version, false), "it is "+name)
	}
	wantUnfit(t, horizon.RefuseByName("PostgreSQL 17.5 on x86_64-pc-linux-gnu", true), "it is Citus")
	for _, version := range []string{"PostgreSQL 14.18 (Debian 14.18-1) on x86_64", "PostgreSQL 17.5 on aarch64-unknown-linux-gnu"} {
		if err := horizon.RefuseByName(version, false); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// A pooler in transaction mode is found, whether it hands out the connection
// that was used last or the one that was idle for longest.
func TestProbeThroughPooler(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(idle []*pgproto3.Frontend) int{
		"the last one":  func(idle []*pgproto3.Frontend) int { return len(idle) - 1 },
		"the first one": func([]*pgproto3.Frontend) int { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := startPooler(t, newNumbers(t), take)
			wantUnfit(t, horizon.ProbeConns(t.Context(), probed, connect(t, address), connect(t, address)), "a pooler is in the way")
		})
	}
}

// pooler gives each transaction of a client a connection of the server, as
// PgBouncer does in transaction mode.
type pooler struct {
	mu   sync.Mutex
	idle []*pgproto3.Frontend
	take func(idle []*pgproto3.Frontend) int
}

// startPooler serves a pooler of two connections, and returns its URL.
func startPooler(t *testing.T, address string, take func([]*pgproto3.Frontend) int) string {
	t.Helper()
	p := &pooler{take: take}
	for range 2 {
		conn, err := pgconn.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		hijacked, err := conn.Hijack()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hijacked.Conn.Close() })
		p.idle = append(p.idle, hijacked.Frontend)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return "postgres://holdfast@" + listener.Addr().String() + "/holdfast?sslmode=disable"
}

// serve relays the messages of one client until it ends.
func (p *pooler) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	client := pgproto3.NewBackend(conn, conn)
	if _, err := client.ReceiveStartupMessage(); err != nil {
		return
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	client.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	var server *pgproto3.Frontend
	for client.Flush() == nil {
		message, err := client.Receive()
		if _, ends := message.(*pgproto3.Terminate); err != nil || ends {
			return
		}
		if server == nil {
			server = p.acquire()
		}
		server.Send(message)
		switch message.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
		default:
			continue
		}
		if server.Flush() != nil {
			return
		}
		for ready := false; !ready; {
			answer, err := server.Receive()
			if err != nil {
				return
			}
			client.Send(answer)
			if r, is := answer.(*pgproto3.ReadyForQuery); is {
				ready = true
				if r.TxStatus == 'I' {
					p.release(server)
					server = nil
				}
			}
		}
	}
}

func (p *pooler) acquire() *pgproto3.Frontend {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.take(p.idle)
	server := p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)
	return server
}

func (p *pooler) release(server *pgproto3.Frontend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, server)
}

func TestSame(t *testing.T) {
	t.Parallel()
	one := pgtest.New(t)
	again, err := pgxpool.New(t.Context(), one.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, tc := range []struct {
		name string
		same bool
	}{{"the same", true}, {"another", false}} {
		other := again
		if !tc.same {
			other = pgtest.New(t)
		}
		if same, err := horizon.Same(t.Context(), one, other); err != nil || same != tc.same {
			t.Errorf("%s database: %t, %v", tc.name, same, err)
		}
	}
}
