package baselines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Request is one caller's request for units of a variant.
type Request struct {
	TenantID, HoldID uuid.UUID
	CartID           string
	VariantID        string
	Quantity         int64
	// TTL is how long the hold lasts; 0 is Holdfast's default. Only Transaction
	// and Carts use it.
	TTL time.Duration
}

// ttl is how long a hold lasts, as Holdfast's default.
const ttl = 15 * time.Minute

func (r *Request) lasts() time.Duration { return cmp.Or(r.TTL, ttl) }

// ErrSoldOut means that there were not enough units; nothing was written.
var ErrSoldOut = errors.New("baselines: sold out")

// tables are as a good engineer would have them: a counter under a CHECK with
// room for heap-only updates, holds with the indexes that a cart's page and an
// expiry job need, and a record of what happened.
var tables = []string{
	`DROP SCHEMA IF EXISTS baseline CASCADE`,
	`CREATE SCHEMA baseline`,
	`CREATE TABLE baseline.stocks (
	    tenant_id  uuid   NOT NULL,
	    variant_id text   NOT NULL,
	    stock      bigint NOT NULL,
	    reserved   bigint NOT NULL DEFAULT 0,
	    CONSTRAINT stocks_pkey PRIMARY KEY (tenant_id, variant_id),
	    CONSTRAINT stocks_no_oversell CHECK (reserved BETWEEN 0 AND stock)
	) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0)`,
	`CREATE TABLE baseline.holds (
	    tenant_id  uuid        NOT NULL,
	    hold_id    uuid        NOT NULL,
	    variant_id text        NOT NULL,
	    cart_id    text        NOT NULL,
	    quantity   bigint      NOT NULL,
	    status     text        NOT NULL DEFAULT 'held',
	    held_at    timestamptz NOT NULL DEFAULT now(),
	    expires_at timestamptz NOT NULL,
	    CONSTRAINT holds_pkey PRIMARY KEY (tenant_id, hold_id)
	) WITH (fillfactor = 85)`,
	`CREATE INDEX holds_cart_idx ON baseline.holds (tenant_id, cart_id)`,
	`CREATE INDEX holds_due_idx ON baseline.holds (expires_at) WHERE status = 'held'`,
	`CREATE TABLE baseline.audit (
	    audit_id   bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
	    tenant_id  uuid        NOT NULL,
	    hold_id    uuid        NOT NULL,
	    action     text        NOT NULL,
	    after      jsonb       NOT NULL,
	    created_at timestamptz NOT NULL DEFAULT now(),
	    CONSTRAINT audit_pkey PRIMARY KEY (tenant_id, hold_id, audit_id)
	)`,
	`CREATE TABLE baseline.units (
	    unit_id    bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	    tenant_id  uuid   NOT NULL,
	    variant_id text   NOT NULL,
	    hold_id    uuid,
	    cart_id    text,
	    held_at    timestamptz,
	    expires_at timestamptz,
	    CONSTRAINT units_pkey PRIMARY KEY (tenant_id, variant_id, unit_id)
	) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0)`,
	`CREATE INDEX units_free_idx ON baseline.units (tenant_id, variant_id, unit_id) WHERE hold_id IS NULL`,
	`CREATE INDEX units_cart_idx ON baseline.units (tenant_id, cart_id) WHERE hold_id IS NOT NULL`,
	`CREATE INDEX units_due_idx ON baseline.units (expires_at) WHERE hold_id IS NOT NULL`,
}

// Shop describes the rows that Prepare inserts.
type Shop struct {
	TenantID uuid.UUID
	// Variants are named by [VariantID], each with Stock units.
	Variants int
	Stock    int64
	// Units adds a row for each unit.
	Units bool
}

// VariantID is the name of the nth variant, from 0.
func VariantID(n int) string { return fmt.Sprintf("variant-%d", n) }

const (
	stocksInsert = `
INSERT INTO baseline.stocks (tenant_id, variant_id, stock)
SELECT $1, 'variant-' || n, $3
FROM generate_series(0, $2::bigint - 1) AS n`
	unitsInsert = `
INSERT INTO baseline.units (tenant_id, variant_id)
SELECT tenant_id, variant_id
FROM baseline.stocks, generate_series(1, stock)`
)

// Prepare drops and creates the tables, fills in the shop, and gathers the
// statistics that autovacuum would have gathered.
func Prepare(ctx context.Context, db *pgxpool.Pool, shop Shop) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, statement := range tables {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, stocksInsert, shop.TenantID, shop.Variants, shop.Stock); err != nil {
			return err
		}
		if shop.Units {
			_, err := tx.Exec(ctx, unitsInsert)
			return err
		}
		return nil
	})
	if err == nil {
		_, err = db.Exec(ctx, `ANALYZE baseline.stocks, baseline.units`)
	}
	if err != nil {
		return fmt.Errorf("prepare the baseline's tables: %w", err)
	}
	return nil
}

const countRows = `
SELECT (SELECT count(*) FROM baseline.holds WHERE status = 'held') + (SELECT count(DISTINCT hold_id) FROM baseline.units),
       (SELECT count(*) FROM baseline.audit WHERE action = 'hold.held'),
       (SELECT coalesce(sum(reserved), 0)::bigint FROM baseline.stocks),
       (SELECT coalesce(sum(quantity), 0)::bigint FROM baseline.holds WHERE status = 'held')
           + (SELECT count(*) FROM baseline.units WHERE hold_id IS NOT NULL),
       (SELECT count(*) FROM baseline.stocks WHERE reserved > stock),
       (SELECT count(*) FROM baseline.units WHERE hold_id IS NOT NULL)`

// Check fails unless the tables have exactly the given number of holds, each
// with its audit row, and its units counted once: in the counters, or in unit
// rows.
func Check(ctx context.Context, db *pgxpool.Pool, holds int64) error {
	var held, audited, reserved, quantity, oversold, units int64
	if err := db.QueryRow(ctx, countRows).Scan(&held, &audited, &reserved, &quantity, &oversold, &units); err != nil {
		return fmt.Errorf("count the baseline's rows: %w", err)
	}
	if held != holds || audited != holds || reserved+units != quantity || oversold != 0 {
		return fmt.Errorf("the baseline's rows do not add up: %d holds were answered, %d are in the table with %d audit rows; their %d units are counted as %d; %d variants are oversold",
			holds, held, audited, quantity, reserved+units, oversold)
	}
	return nil
}

// after is the part of an audit row that describes a hold, besides its id.
func (r *Request) after() json.RawMessage {
	return append(strconv.AppendInt([]byte(`{"status":"held","quantity":`), r.Quantity, 10), '}')
}
