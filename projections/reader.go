package projections

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/sleep"
)

// pollEvery is how often an idle feed polls the record.
const pollEvery = 200 * time.Millisecond

func (f *Feed) subscribe(ctx context.Context) (*audit.Subscription, error) {
	sub, err := audit.Subscribe(ctx, f.db, subscription, audit.SubscriptionConfig{
		FromBeginning: true, Batch: f.config.Batch, Lease: f.config.Lease, PollEvery: pollEvery, BackoffMax: 5 * time.Second,
	})
	return sub, err
}

// deliver is handle, and a pause if the feed keeps up.
func (f *Feed) deliver(ctx context.Context, d *audit.Delivery) error {
	err := f.handle(ctx, d)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		f.config.Log.WarnContext(ctx, "a delivery to the projections took longer than the lease: the next one is smaller", "records", len(d.Records))
	case err == nil && !d.More:
		_ = sleep.For(ctx, f.config.Pause) // or the program ends
	}
	return err
}

// emptySQL returns the projections without states, if the feed has a position.
const emptySQL = `
SELECT n.name
FROM unnest($2::text[]) AS n (name)
WHERE EXISTS (SELECT FROM audit_subscriptions s WHERE s.name = $1 AND s.position > 0)
    AND NOT EXISTS (SELECT FROM projection_snapshots p WHERE p.projection_name = n.name)
LIMIT $3`

// warnOfNew logs a warning for each projection that may be new, and so lacks the
// records before the feed's position. The feed does not rebuild it: while
// processes of an older version still run, one of them may deliver the records
// that follow, without the new projection.
func (f *Feed) warnOfNew(ctx context.Context) {
	names := f.names()
	rows, _ := f.db.Query(ctx, emptySQL, subscription, names, len(names))
	empty, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil && ctx.Err() == nil {
		f.config.Log.WarnContext(ctx, "new projections were not looked for", "error", err)
	}
	for _, name := range empty {
		f.config.Log.WarnContext(ctx, "a projection has no states, and the feed is past the beginning of the record: if it is new, rebuild it once all processes have it",
			"projection", name, "command", "holdfast projections rebuild "+name)
	}
}
