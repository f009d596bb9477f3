package boot

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dialer connects to the database. The kernel ends a connection to a machine
// that is gone within about ten seconds: keep-alives detect it on an idle
// connection, unacknowledgedMax on a connection with unacknowledged data.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 3},
	Control:         boundUnacknowledged,
}

// unacknowledgedMax is how long sent data may stay unacknowledged.
const unacknowledgedMax = 10 * time.Second

// abandonWithin bounds each of the two steps in which the driver abandons a
// connection whose call was ended: it asks the server to cancel the statement,
// and waits for the server to close the connection. Meanwhile the connection
// counts as one of its pool's, and the driver would wait 15 s for a silent
// server.
const abandonWithin = time.Second

// boundLinks makes the pool abandon connections within twice abandonWithin.
func boundLinks(c *pgxpool.Config) {
	c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		dial, connected := c.DialFunc, &atomic.Bool{}
		c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if !connected.Load() {
				conn, err := dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return &link{conn}, nil
			}
			// The only other reason to dial is to cancel a statement.
			ctx, cancel := context.WithTimeout(ctx, abandonWithin)
			defer cancel()
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return conn, conn.SetDeadline(time.Now().Add(abandonWithin))
		}
		c.AfterConnect = func(context.Context, *pgconn.PgConn) error {
			connected.Store(true)
			return nil
		}
		return nil
	}
}

// link is a connection to the database. The driver sets deadlines only to end
// its current use of a connection.
type link struct{ net.Conn }

// SetDeadline sets no deadline later than abandonWithin from now. The zero time
// removes the deadline.
func (l *link) SetDeadline(t time.Time) error {
	if soon := time.Now().Add(abandonWithin); t.After(soon) {
		t = soon
	}
	return l.Conn.SetDeadline(t)
}
