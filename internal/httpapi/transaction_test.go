package httpapi

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
)

// TestCommitOfUnknownFate cuts the connection while a COMMIT is sent, before or
// after the server has it. A request that can be repeated is repeated and has
// one effect. The response to any other is outcome_unknown.
func TestCommitOfUnknownFate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		arrives bool // whether the server sees the commit before the connection is cut
	}{{"committed", true}, {"not committed", false}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.stock("shirt", `{"stock":10}`)
			cut := s.cutCommits(tc.arrives)

			cut.Store(1)
			s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`, keyHeader, "k")
			s.holds("11")
			cut.Store(1)
			s.call(200, "PUT", "/v1/stocks/shirt", `{"stock":20}`)
			s.holds("20")
			cut.Store(1)
			s.refused(outcomeUnknown, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`)
			if tc.arrives {
				s.holds("21")
			} else {
				s.holds("20")
			}
			cut.Store(3)     // as often as a call is tried
			if !tc.arrives { // else the second try finds the effect of the first
				s.refused(overloaded, "POST", "/v1/stocks/shirt/adjust", `{"delta":5}`, keyHeader, "l")
			}
			s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":5}`, keyHeader, "l")
			if tc.arrives {
				s.holds("26")
			} else {
				s.holds("25")
			}
		})
	}
}

func (s *shop) holds(stock string) {
	s.t.Helper()
	if got := s.rows(`SELECT stock::text FROM inventory_stocks`); got[0] != stock {
		s.t.Errorf("the stock is %s, want %s", got[0], stock)
	}
}

// cutCommits gives the service a pool whose connections break at a commit, the
// returned number of times.
func (s *shop) cutCommits(arrives bool) *atomic.Int32 {
	s.t.Helper()
	cut := &atomic.Int32{}
	config := s.db.Config()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &cutter{Conn: conn, cut: cut, arrives: arrives}, err
	}
	pool, err := pgxpool.NewWithConfig(s.t.Context(), config)
	s.must(err)
	s.t.Cleanup(pool.Close)
	s.serveChanged(pool, func(c *holdfast.Config) { c.IntakePool = s.db })
	return cut
}

type cutter struct {
	net.Conn
	cut     *atomic.Int32
	arrives bool
}

func (c *cutter) Write(p []byte) (int, error) {
	if !bytes.Contains(p, []byte("commit")) || c.cut.Add(-1) < 0 {
		return c.Conn.Write(p)
	}
	n := len(p)
	if c.arrives {
		if _, err := c.Conn.Write(p); err != nil {
			return 0, err
		}
		// The server's response means that the COMMIT is done. It is dropped
		// here.
		if _, err := c.Conn.Read(make([]byte, 1)); err != nil {
			return 0, err
		}
	}
	return n, c.Conn.Close()
}
