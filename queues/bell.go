package queues

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/requests"
)

// Client is River's client as Holdfast uses it.
type Client = river.Client[pgx.Tx]

// WakeArgs is a wake as River stores it. It says that a slot has work and carries none; working it twice is harmless.
type WakeArgs struct {
	Lane string `json:"lane"`
	Slot int16  `json:"slot"`
}

// Kind names the job.
func (WakeArgs) Kind() string { return "holdfast_wake" }

// Bell rings slots: it inserts wakes, in the transaction that makes the work or after it. It is safe for concurrent use.
type Bell struct {
	db     *pgxpool.Pool
	client *Client
}

// NewBell makes a bell. The River client behind it only inserts; its notifications are not held back, because they
// decide how soon a worker begins.
func NewBell(db *pgxpool.Pool) (*Bell, error) {
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema:              migrations.RiverSchema,
		FetchCooldown:       time.Millisecond,
		Logger:              slog.New(slog.DiscardHandler), // it only inserts, and errors come back from the insert
		SkipUnknownJobCheck: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the bell: %w", err)
	}
	return &Bell{db, client}, nil
}

// RingTx inserts one wake for each slot. Workers see them when tx commits. It is right at every isolation level.
func (b *Bell) RingTx(ctx context.Context, tx pgx.Tx, wakes []requests.Wake) error {
	params := make([]river.InsertManyParams, len(wakes))
	for i, w := range wakes {
		params[i] = river.InsertManyParams{
			Args:       WakeArgs{w.Lane, w.Slot},
			InsertOpts: &river.InsertOpts{Queue: w.Lane, MaxAttempts: wakeAttempts},
		}
	}
	if _, err := b.client.InsertManyFastTx(ctx, tx, params); err != nil {
		return fmt.Errorf("insert wakes: %w", err)
	}
	return nil
}

// hintSQL lets a commit not wait for the disk.
const hintSQL = `SELECT set_config('synchronous_commit', 'off', true)`

// Ring inserts one wake for each slot in a transaction of its own, which does not wait for the disk: a wake that a crash
// of the server takes with it is found by the tick.
func (b *Bell) Ring(ctx context.Context, wakes []requests.Wake) error {
	return pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, hintSQL); err != nil {
			return fmt.Errorf("insert wakes: %w", err)
		}
		return b.RingTx(ctx, tx, wakes)
	})
}

// wakeAttempts is how often River tries a wake; after that the tick does.
const wakeAttempts = 5
