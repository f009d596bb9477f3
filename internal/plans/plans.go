package plans

import (
	"context"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lookup are session parameters under which a statement keeps its plan, and no plan is tried but to look rows up by index.
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

// QueueLookUp adds to b a statement by which the rest of the transaction looks rows up by index, with plans made for the
// number of them. It is for a transaction that writes a bounded set of rows that it knows by their keys, now and then: on
// a table that grew since it was last analysed, or since a plan was kept, all of the table would be read for them.
func QueueLookUp(b *pgx.Batch) { b.Queue(lookUpSQL) }

// keptFor is how long plans are kept. One that was made while a table was empty may read all of the table, by an index,
// for each row of a group. In so short a time it does not become large: after a second of 5,000 requests, one group took
// the 10 s that its transaction has.
const keptFor = 200 * time.Millisecond

// discardWithin bounds how long the plans may take to be discarded.
const discardWithin = time.Second

const discardSQL = `DISCARD PLANS`

// madeAt is where a connection notes when its plans were last discarded.
const madeAt = "holdfast.plans_made_at"

// Keep makes a pool's connections keep their plans, for a moment. It is for those that only admit and drain: whatever such
// a statement touches, it looks up by index, row by row from the few that its arguments or its claim name. Planning anew
// each time took a fifth of what small groups cost.
//
// Parameters that the configuration has already are left as they are.
func Keep(config *pgxpool.Config) {
	parameters := maps.Clone(lookup)
	maps.Copy(parameters, config.ConnConfig.RuntimeParams)
	config.ConnConfig.RuntimeParams = parameters
	config.AfterRelease = refresh
}

// refresh discards the plans of a connection that nobody uses at the moment, if they are old. It reports whether the
// connection is good.
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
