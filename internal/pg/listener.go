package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/sleep"
)

// listenAgain is the pause before a lost connection is replaced.
const listenAgain = 500 * time.Millisecond

// Listener receives the notifications of a channel. Notifications sent while it
// has no connection are lost.
type Listener struct {
	// DB makes the connection, which the pool does not count.
	DB      *pgxpool.Pool
	Channel string
	// Began is called each time a connection has begun to listen; nil: not
	// called. An error ends the connection.
	Began func(ctx context.Context) error
	// Received is called with the payload of each notification, one call at a
	// time.
	Received func(payload string)
	// Lost is called with the error that ended a connection or an attempt to
	// connect.
	Lost func(ctx context.Context, err error)
}

// Run listens until ctx ends, and returns nil.
func (l *Listener) Run(ctx context.Context) error {
	for {
		err := l.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		l.Lost(ctx, err)
		if sleep.For(ctx, listenAgain) != nil {
			return nil
		}
	}
}

func (l *Listener) listen(ctx context.Context) error {
	pooled, err := l.DB.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, `LISTEN `+l.Channel); err != nil {
		return err
	}
	if l.Began != nil {
		if err := l.Began(ctx); err != nil {
			return err
		}
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		l.Received(n.Payload)
	}
}
