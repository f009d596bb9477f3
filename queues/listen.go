package queues

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/notify"
)

// wakeChannel is where slots with work are notified, as lane/slot.
const wakeChannel = "holdfast_wake"

// othersWait is how long at most a process waits that did not drain a slot last, so that the one that did comes first.
const othersWait = 10 * time.Millisecond

// Listen wakes the lanes' slots when a Bell notifies of them, until ctx ends. It has a connection of its own, made by db. A
// notification that is lost costs a tick: each time it has begun to listen, the lanes look for work.
func Listen(ctx context.Context, db *pgxpool.Pool, log *slog.Logger, lanes ...*Lane) error {
	listener := notify.Listener{
		DB: db, Channel: wakeChannel,
		Began: func(ctx context.Context) error {
			for _, l := range lanes {
				if err := l.dispatch(ctx); err != nil {
					return err
				}
			}
			return nil
		},
		Received: func(payload string) {
			name, number, _ := strings.Cut(payload, "/")
			slot, err := strconv.ParseInt(number, 10, 16)
			if err != nil || slot < 0 {
				return // of another program
			}
			for _, l := range lanes {
				if l.Name() == name {
					l.wakeInTurn(int16(slot))
				}
			}
		},
		Lost: func(ctx context.Context, err error) {
			log.WarnContext(ctx, "listening for wakes was interrupted; ticks find the work meanwhile", "error", err)
		},
	}
	return listener.Run(ctx)
}

// wakeInTurn wakes a slot that all processes were notified of: at once if this one drained it last, else a little later.
func (l *Lane) wakeInTurn(slot int16) {
	if l.owns(slot) {
		l.Wake(slot)
		return
	}
	wait := time.Duration(rand.Int64N(int64(othersWait))) //nolint:gosec // it only spreads the processes
	time.AfterFunc(wait, func() { l.Wake(slot) })
}
