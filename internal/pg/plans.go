package pg

import (
	"context"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lookup are session parameters that force generic plans, and index lookups
// within them.
var lookup = map[string]string{
	"plan_cache_mode":  "force_generic_plan",
	"enable_seqscan":   "off",
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"enable_material":  "off",
}

const lookUpSQL = `
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true)`

// QueueLookUp adds to b a statement that makes the rest of the transaction find
// rows by index, with custom plans. It is for an occasional transaction that
// writes a bounded set of rows whose keys are known. Without it, a plan may
// read the whole table if the table grew since it was last analysed, or since a
// generic plan was made.
func QueueLookUp(b *pgx.Batch) { b.Queue(lookUpSQL) }

const (
	sortOffSQL = `SELECT set_config('enable_sort', 'off', true)`
	sortOnSQL  = `SELECT set_config('enable_sort', 'on', true)`
)

// QueueInOrder makes the statement that queue adds to b read its rows in the
// order of an index, up to its LIMIT, and sort nothing. It is for a statement
// whose WHERE bounds the column that it is ordered by on both sides, of which
// the bounded rows may be most of the table. The planner takes two bounds that
// it does not know for half a percent of the table, and would read and sort
// what may be all of it for each batch. It misjudges one bound too before a
// table is first analysed.
//
// It changes the transaction's settings for this statement only. The statement
// needs an index in its order; what it sorts besides, it still sorts.
func QueueInOrder(b *pgx.Batch, queue func()) {
	b.Queue(sortOffSQL)
	queue()
	b.Queue(sortOnSQL)
}

// ReadInOrder reads rows by one statement of QueueInOrder.
func ReadInOrder[T any](ctx context.Context, db Batcher, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var found *[]T
	b := &pgx.Batch{}
	QueueInOrder(b, func() { found = Collect(b, scan, sql, args...) })
	err := db.SendBatch(ctx, b).Close()
	return *found, err
}

// keptFor is how long a connection keeps generic plans. A plan made for an
// empty table may read the whole table, by an index, for each row of a group.
// In 200 ms the table stays small. After one second with 5,000 requests, a
// group used up the 10 s of its transaction.
const keptFor = 200 * time.Millisecond

// discardWithin bounds DISCARD PLANS.
const discardWithin = time.Second

const discardSQL = `DISCARD PLANS`

// madeAt is the key of a connection's custom data for the time when its plans
// were last discarded.
const madeAt = "holdfast.plans_made_at"

// ForceGenericPlans makes the connections of a pool use generic plans, which it
// discards every 200 ms. It is for pools that only admit and drain. Their
// statements find rows by index, one at a time, by the keys in their arguments
// or in their claim. Planning each execution took a fifth of the cost of small
// groups.
//
// It changes config.AfterRelease, and keeps the parameters that config already
// has.
func ForceGenericPlans(config *pgxpool.Config) {
	parameters := maps.Clone(lookup)
	maps.Copy(parameters, config.ConnConfig.RuntimeParams)
	config.ConnConfig.RuntimeParams = parameters
	config.AfterRelease = refresh
}

// refresh discards the plans of a released connection if they are old. It
// reports whether the connection is usable.
func refresh(conn *pgx.Conn) bool {
	noted := conn.PgConn().CustomData()
	if made, ok := noted[madeAt].(time.Time); ok && time.Since(made) < keptFor {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), discardWithin)
	defer cancel()
	if _, err := conn.Exec(ctx, discardSQL); err != nil {
		return false
	}
	noted[madeAt] = time.Now()
	return true
}
