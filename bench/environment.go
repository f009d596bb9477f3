package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/bench/load"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
)

// environment is a Holdfast database with the lanes of a worker over it, in
// this process.
type environment struct {
	// url is the database's. db has the connections of a worker, admissions
	// those of an API's intake.
	url            string
	db, admissions *pgxpool.Pool
	// unbounded is a connection for what is not measured and may take longer than
	// the programs' statement_timeout.
	unbounded   *pgxpool.Pool
	inserter    *queues.WakeInserter
	hot, normal *queues.Lane
	tenant      uuid.UUID
	slot        int16 // of the hot variant
	intake      admission.IntakeConfig
	opened      []*pgxpool.Pool // by open
}

// parameters are the settings of the connections of Holdfast's programs that
// affect speed.
var parameters = map[string]string{
	"default_transaction_isolation":       "read committed",
	"jit":                                 "off",
	"client_connection_check_interval":    "1s",
	"idle_in_transaction_session_timeout": "5s",
	"statement_timeout":                   "15s",
}

// The programs' own numbers.
const (
	workerConns     = 14
	admissionsConns = 6
)

// newEnvironment makes the database. Its lanes have the programs' settings,
// which are the packages' defaults.
func (b *bench) newEnvironment(ctx context.Context) (_ *environment, err error) {
	g := &environment{tenant: newID()}
	if g.url, err = b.newDatabase(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if g.db, err = openPool(ctx, g.url, workerConns, parameters, pg.ForceGenericPlans); err != nil {
		return nil, err
	}
	if g.admissions, err = openPool(ctx, g.url, admissionsConns, parameters, pg.ForceGenericPlans); err != nil {
		return nil, err
	}
	if g.unbounded, err = g.open(ctx, 1); err != nil {
		return nil, err
	}
	if _, err := g.unbounded.Exec(ctx, `SET jit = off; SET synchronous_commit = off`); err != nil {
		return nil, err
	}
	if g.inserter, err = queues.NewWakeInserter(g.admissions); err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	if b.verbose {
		log = slog.New(slog.NewTextHandler(b.stderr, nil))
	}
	if g.hot, err = hot.NewLane(g.db, log, queues.LaneConfig{}); err != nil {
		return nil, err
	}
	g.normal, err = normal.NewLane(g.db, log, queues.LaneConfig{})
	return g, err
}

// open opens a pool for a baseline; close closes it.
func (g *environment) open(ctx context.Context, conns int) (*pgxpool.Pool, error) {
	db, err := openPool(ctx, g.url, conns, nil)
	if err == nil {
		g.opened = append(g.opened, db)
	}
	return db, err
}

func (g *environment) close() {
	for _, db := range append(g.opened, g.db, g.admissions) {
		if db != nil {
			db.Close()
		}
	}
}

const fullTablesSQL = `
SELECT string_agg(format('%I.%I', schemaname, tablename), ', ')
FROM pg_tables
WHERE schemaname = 'public' AND tablename NOT IN ('goose_db_version', 'goose_metered_version', 'tenants', 'api_keys', 'lane_slots', 'hot_detector')
   OR schemaname = 'river' AND tablename = 'river_job'`

const (
	dropSlotsSQL  = `DELETE FROM lane_slots WHERE slot >= 0`
	normalSlotSQL = `INSERT INTO lane_slots (lane, slot) VALUES ('normal', 0), ('normal', 1)`
	detectorSQL   = `UPDATE hot_detector SET ran_at = '-infinity', seen = 0`
	// fillStocksSQL writes the record of the stocks too, as their verb does:
	// without it a stock is broken.
	fillStocksSQL = `
WITH made AS (
    INSERT INTO inventory_stocks (tenant_id, variant_id, stock)
    SELECT $1, 'variant-' || n, $3
    FROM generate_series(0, $2::bigint - 1) AS n
    RETURNING tenant_id, variant_id, stock, tracked, backorder, hold_ttl_seconds, max_per_cart, lane, admission
)
INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after)
SELECT made.tenant_id, gen_random_uuid(), 'stock.set', 'system',
       jsonb_build_object('variant_id', variant_id, 'stock', stock, 'reserved', 0, 'tracked', tracked, 'backorder', backorder,
           'hold_ttl_seconds', hold_ttl_seconds, 'max_per_cart', max_per_cart, 'lane', lane, 'admission', admission)
FROM made`
)

// reset empties the tables and gives the variants plenty of stock. If pin is
// true, the first variant is pinned and has arrived in its lane.
func (g *environment) reset(ctx context.Context, variants int, pin bool) error {
	var tables string
	if err := g.db.QueryRow(ctx, fullTablesSQL).Scan(&tables); err != nil {
		return fmt.Errorf("find the tables: %w", err)
	}
	err := pgx.BeginFunc(ctx, g.db, func(tx pgx.Tx) error {
		for _, statement := range []string{`TRUNCATE ` + tables + ` RESTART IDENTITY`, dropSlotsSQL, normalSlotSQL, detectorSQL} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, fillStocksSQL, g.tenant, variants, plenty)
		return err
	})
	if err != nil {
		return fmt.Errorf("empty the tables: %w", err)
	}
	if pin {
		if err := g.pin(ctx, hotVariant); err != nil {
			return err
		}
	}
	_, err = g.db.Exec(ctx, `ANALYZE inventory_stocks, lane_slots, hot_variants`)
	return err
}

// hotVariant is the first variant.
const hotVariant = "variant-0"

const slotOfSQL = `SELECT slot, state FROM hot_variants WHERE tenant_id = $1 AND variant_id = $2`

// pin makes a variant hot and waits until the move is over.
func (g *environment) pin(ctx context.Context, variant string) error {
	if err := lanes.Pin(ctx, g.db, g.inserter, g.tenant, variant); err != nil {
		return err
	}
	var state string
	for range 1000 {
		if _, err := g.hot.Tick(ctx); err != nil {
			return err
		}
		if err := g.db.QueryRow(ctx, slotOfSQL, g.tenant, variant).Scan(&g.slot, &state); err != nil {
			return err
		}
		if state == "hot" {
			return nil
		}
	}
	return fmt.Errorf("variant %s is still %s", variant, state)
}

// enterSQL makes a transaction an admission under way, which keeps the drains'
// low-water marks from passing it. It comes before queueSQL.
const enterSQL = `SELECT ` + horizon.EnterSequence + ` FROM reservation_requests_sequence_seq`

// queueSQL writes rows as admission does; a test compares them.
const queueSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, kind, cart_id, variant_id, quantity, lane, slot)
SELECT $1, q.request_id, 'add', q.cart_id, q.variant_id, 1, $5, $6
FROM unnest($2::uuid[], $3::text[], $4::text[]) AS q (request_id, cart_id, variant_id)`

// queueGroup is how many rows one statement of queue writes.
const queueGroup = 500

// queue admits n requests before the clock starts: it writes rows as admission
// does, in groups, and gathers the statistics that autovacuum would have
// gathered meanwhile.
func (g *environment) queue(ctx context.Context, lane lanes.Lane, slot int16, n int, variant func() string) error {
	next := func() load.Item { return load.Item{CartID: cartID(), VariantID: variant()} }
	if err := insertQueued(ctx, g.db, g.tenant, lane, slot, n, next); err != nil {
		return err
	}
	_, err := g.db.Exec(ctx, `ANALYZE reservation_requests`)
	return err
}

// insertQueued writes n requests of a tenant, one transaction per group. Drains
// may run meanwhile.
func insertQueued(ctx context.Context, db *pgxpool.Pool, tenant uuid.UUID, lane lanes.Lane, slot int16, n int, next func() load.Item) error {
	for left := n; left > 0; left -= queueGroup {
		group := min(left, queueGroup)
		ids, carts, variants := make([]uuid.UUID, group), make([]string, group), make([]string, group)
		for i := range group {
			item := next()
			ids[i], carts[i], variants[i] = newID(), item.CartID, item.VariantID
		}
		batch := new(pgx.Batch) // one transaction
		batch.Queue(enterSQL)
		batch.Queue(queueSQL, tenant, ids, carts, variants, lane, slot)
		if err := db.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("queue %d requests: %w", group, err)
		}
	}
	return nil
}

const countSQL = `
SELECT (SELECT count(*) FROM reservation_requests WHERE status = 'done'),
       (SELECT count(*) FROM reservation_requests WHERE status <> 'done'),
       (SELECT count(*) FROM reservations WHERE status = 'held'),
       (SELECT count(*) FROM audit_log WHERE action = 'reservation.held'),
       (SELECT coalesce(sum(reserved), 0)::bigint FROM inventory_stocks),
       (SELECT count(*) FROM inventory_stocks WHERE reserved > stock)`

// counts are the rows there are.
type counts struct{ done, undone, held, audited, reserved, oversold int64 }

func countRows(ctx context.Context, db *pgxpool.Pool) (c counts, err error) {
	err = db.QueryRow(ctx, countSQL).Scan(&c.done, &c.undone, &c.held, &c.audited, &c.reserved, &c.oversold)
	return c, err
}

// checkRows fails unless exactly the given number of requests is done, each
// with its hold, its audit row and its unit.
func (g *environment) checkRows(ctx context.Context, s sample) error {
	c, err := countRows(ctx, g.unbounded)
	if want := (counts{s.count, 0, s.count, s.count, s.count, 0}); err == nil && c != want {
		err = fmt.Errorf("the rows do not add up: %+v, want %+v", c, want)
	}
	return err
}
