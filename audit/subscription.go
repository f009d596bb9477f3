package audit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/horizon"
)

// SubscriptionConfig bounds a subscription. The zero value of a field is its
// default.
type SubscriptionConfig struct {
	// FromBeginning makes a new subscription begin with the oldest row there
	// is. By default it begins with what happens from now on. An existing one
	// continues at its position.
	FromBeginning bool
	// Batch is how many records one delivery holds at most; default 500.
	Batch int
	// Lease is how long a delivery may take before another process may deliver
	// the same records again. It is also how long deliveries pause after the
	// process that delivers has died. After a delivery that took longer, the
	// next one is half as large; with each that succeeds they grow again, by a
	// 16th of Batch. Default 30 s.
	Lease time.Duration
	// PollEvery is how often Run polls while there is nothing to deliver;
	// default 100 ms.
	PollEvery time.Duration
	// BackoffMax bounds the wait after a failed delivery, which begins at
	// PollEvery and doubles; default 30 s.
	BackoffMax time.Duration
}

func (c SubscriptionConfig) withDefaults() (SubscriptionConfig, error) {
	c.Batch = cmp.Or(c.Batch, 500)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.PollEvery = cmp.Or(c.PollEvery, 100*time.Millisecond)
	c.BackoffMax = cmp.Or(c.BackoffMax, 30*time.Second)
	if c.Batch < 1 || c.Batch > 10_000 || c.Lease < time.Millisecond || c.PollEvery <= 0 || c.BackoffMax < c.PollEvery {
		return c, fmt.Errorf("subscription: want 1 ≤ batch (%d) ≤ 10000, lease (%s) ≥ 1ms, 0 < poll_every (%s) ≤ backoff_max (%s)",
			c.Batch, c.Lease, c.PollEvery, c.BackoffMax)
	}
	return c, nil
}

// Subscription is a named, durable reader of the record. Every record is
// delivered at least once, those of one target in the order of what happened;
// across targets the order is that of their ids. Several processes may open a
// subscription of the same name: one of them delivers at a time, and another
// one takes over when it dies.
//
// A subscription sees a record once every transaction that was running when the
// record's id was drawn has ended. So a long transaction delays the records
// after it for every reader, and loses none. A Subscription is not safe for
// concurrent use: open one per goroutine.
type Subscription struct {
	db     *pgxpool.Pool
	name   string
	config SubscriptionConfig
	batch  int   // how many records the next delivery holds at most
	epoch  int64 // of this process's lease, or noLease
}

const subscribeSQL = `
INSERT INTO audit_subscriptions (name, position, settled, next, next_horizon)
SELECT $1, start, start, start, '0'
FROM (SELECT CASE WHEN $2 THEN 0 ELSE ` + horizon.Drawn + ` END AS start FROM audit_log_audit_id_seq) begin
ON CONFLICT (name) DO NOTHING`

// Subscribe opens the subscription of that name, and creates it if it is new. A
// name has 1 to 64 characters.
func Subscribe(ctx context.Context, db *pgxpool.Pool, name string, config SubscriptionConfig) (*Subscription, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(ctx, subscribeSQL, name, config.FromBeginning); err != nil {
		return nil, fmt.Errorf("subscribe %q: %w", name, err)
	}
	return &Subscription{db: db, name: name, config: config, batch: config.Batch, epoch: noLease}, nil
}

const unsubscribeSQL = `DELETE FROM audit_subscriptions WHERE name = $1`

// Unsubscribe removes a subscription: pruning no longer waits for it, and
// [Subscription.Run] of that name returns [ErrNoSubscription] in every process.
// A handler that is running ends as usual, and its checkpoint is refused. An
// unknown name is not an error.
func Unsubscribe(ctx context.Context, db *pgxpool.Pool, name string) error {
	if _, err := db.Exec(ctx, unsubscribeSQL, name); err != nil {
		return fmt.Errorf("unsubscribe %q: %w", name, err)
	}
	return nil
}

// SubscriptionState is how far a subscription has come.
type SubscriptionState struct {
	Name string `json:"name"`
	// Position is the id of the last record delivered, or where the
	// subscription began. Lag is how many ids have been drawn since.
	Position int64 `json:"position"`
	Lag      int64 `json:"lag"`
	// LagSeconds is the age of the oldest record that is not delivered: 0 if
	// there is no such record, or if the clock was set back behind it.
	LagSeconds float64 `json:"lag_seconds"`
	// Failures counts the failed deliveries since the last successful one.
	// LastError is the error of the last failed one.
	Failures    int        `json:"failures"`
	LastError   string     `json:"last_error,omitempty"`
	DeliveredAt *time.Time `json:"delivered_at"`
}

// subscriptionsMax is how many subscriptions Subscriptions returns at most.
const subscriptionsMax = 1000

const subscriptionsSQL = `
SELECT s.name, s.position, greatest(ids.last - s.position, 0) AS lag,
       greatest(coalesce(extract(epoch FROM clock_timestamp() - oldest.created_at), 0), 0)::double precision AS lag_seconds,
       s.failures, coalesce(s.last_error, '') AS last_error, s.delivered_at
FROM audit_subscriptions s
CROSS JOIN (SELECT ` + horizon.Drawn + ` AS last FROM audit_log_audit_id_seq) ids
LEFT JOIN LATERAL (
    SELECT a.created_at
    FROM audit_log a
    WHERE a.audit_id > s.position
    ORDER BY a.audit_id
    LIMIT 1
) oldest ON true
ORDER BY s.name
LIMIT $1`

// Subscriptions returns how far every subscription has come, by name.
func Subscriptions(ctx context.Context, db Querier) ([]SubscriptionState, error) {
	rows, _ := db.Query(ctx, subscriptionsSQL, subscriptionsMax)
	states, err := pgx.CollectRows(rows, pgx.RowToStructByPos[SubscriptionState])
	if err != nil {
		return nil, fmt.Errorf("read the subscriptions: %w", err)
	}
	return states, nil
}
