package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/chaos/traffic"
	"github.com/holdfast/holdfast/verify"
)

// The rules in addition to those of the traffic.
const (
	RuleDecided   = "P2: every accepted request is decided"
	RuleConserved = "units are conserved: initial stock + adjustments = committed + held + available"
	RuleDeadline  = "P5: no hold expires before the deadline that was answered"
	RuleRecorded  = "P1: by the sum of the audit rows reserved never exceeds the stock"
	RuleOrder     = "P8: first come, first served in the hot lane"
	RuleNothing   = "a refused call changes nothing"
	RuleVerify    = "verify finds nothing broken"
)

// checker has the tables in memory.
type checker struct {
	facts    traffic.Facts
	tenants  []*traffic.Tenant
	findings *traffic.Findings

	tenantIDs []uuid.UUID // the tenants whose rows are read: an upgrade adds rows of another one

	rows         map[uuid.UUID]requestRow
	keys         map[keyRef][]uuid.UUID
	correlations map[string]int // requests by correlation id
	reserved     map[uuid.UUID]reservationRow
	record       []auditRow
	decided      map[uuid.UUID]auditRow // by request, the audit row that decided it
	effects      map[effect]int
	stock        map[traffic.StockRef]stockRow
	ordered      int
}

// Sum is the number of rows that were compared with the record.
type Sum struct {
	Requests     int `json:"requests"`
	Reservations int `json:"reservations"`
	AuditRows    int `json:"audit_rows"`
	// Ordered are the requests whose order was checked.
	Ordered int `json:"in_line"`
	Verbs   int `json:"verbs"`
}

// All compares all rows of the tenants, each in the cell where it is active, with
// the record. The programs must have no work left.
func All(ctx context.Context, cells []*pgxpool.Pool, facts traffic.Facts, tenants []*traffic.Tenant, findings *traffic.Findings) (Sum, error) {
	c := &checker{facts: facts, tenants: tenants, findings: findings}
	for _, tenant := range tenants {
		c.tenantIDs = append(c.tenantIDs, tenant.ID)
	}
	// The checks need one snapshot, because holds expire meanwhile.
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	for _, db := range cells {
		if err := pgx.BeginTxFunc(ctx, db, snapshot, func(tx pgx.Tx) error { return c.read(ctx, tx) }); err != nil {
			return Sum{}, err
		}
	}
	c.compare()
	sum := Sum{Requests: len(c.rows), Reservations: len(c.reserved), AuditRows: len(c.record), Ordered: c.ordered, Verbs: len(facts.Verbs)}
	for _, db := range cells {
		if err := c.verify(ctx, db); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// read reads the rows of the tenants that are active in one cell.
func (c *checker) read(ctx context.Context, tx pgx.Tx) error {
	if c.rows == nil {
		c.rows, c.keys, c.correlations = make(map[uuid.UUID]requestRow), make(map[keyRef][]uuid.UUID), make(map[string]int)
		c.reserved = make(map[uuid.UUID]reservationRow)
		c.decided, c.effects = make(map[uuid.UUID]auditRow), make(map[effect]int)
		c.stock = make(map[traffic.StockRef]stockRow)
	}
	for _, read := range []func(context.Context, pgx.Tx) error{c.readRequests, c.readReservations, c.readAudit, c.readStocks} {
		if err := read(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// compare compares the rows that were read with the record.
func (c *checker) compare() {
	c.requests()
	c.reservations()
	c.levels()
	c.verbs()
	c.order()
	c.stocks()
}

type keyRef struct {
	tenant uuid.UUID
	key    string
}

// effect is what one call did to one target.
type effect struct {
	correlation, action string
	target              uuid.UUID
}

type requestRow struct {
	TenantID, ID                  uuid.UUID
	Status, Reason, Cart, Variant string
	Quantity                      int64
	Key, Correlation              string
	Attempts                      int
	Lane                          string
	UpdatedAt                     time.Time
	IsPart                        bool // of a request of several lines
}

const requestsSQL = ofActive + `
SELECT tenant_id, request_id, status, coalesce(reason, ''), cart_id, variant_id, quantity, coalesce(idempotency_key, ''),
       coalesce(correlation_id, ''), attempts, lane, updated_at, parent_id IS NOT NULL
FROM reservation_requests
JOIN active USING (tenant_id)`

type reservationRow struct {
	ID                      uuid.UUID
	Variant, Holder, Status string
	Quantity                int64
	ExpiresAt               time.Time
	EndedAt                 *time.Time
	TenantID                uuid.UUID
}

const reservationsSQL = ofActive + `
SELECT reservation_id, resource_key, holder_id, status, quantity - coalesce(returned_quantity, 0), expires_at, ended_at, tenant_id
FROM reservations
JOIN active USING (tenant_id)`

type auditRow struct {
	ID                  int64
	Transaction         int64 // 0: not known, because the row was copied from another cell
	TenantID, Target    uuid.UUID
	Action, Correlation string
	Variant             string
	Quantity, Was       int64 // units of a reservation, after and before
	Stock, Reserved     *int64
	Bounded             *bool
	Reason              string
}

const auditSQL = ofActive + `
SELECT audit_id, CASE WHEN audit_log.created_at < active.arrived_at THEN 0 ELSE audit_log.xmin::text::bigint END, tenant_id, target_id, action, coalesce(correlation_id, ''),
       coalesce(resource_key, after->>'variant_id', ''), coalesce(quantity, (after->>'quantity')::bigint, 0), coalesce((before->>'quantity')::bigint, 0),
       (after->>'stock')::bigint, (after->>'reserved')::bigint,
       (after->>'tracked')::boolean AND NOT (after->>'backorder')::boolean, coalesce(after->>'reason', '')
FROM audit_log
JOIN active USING (tenant_id)
ORDER BY audit_id`

type stockRow struct {
	TenantID        uuid.UUID
	Variant         string
	Stock, Reserved int64
}

const stocksSQL = ofActive + `
SELECT tenant_id, variant_id, stock, reserved FROM inventory_stocks JOIN active USING (tenant_id)`

// ofActive has those of the tenants that are active in this cell.
const ofActive = `WITH active AS (SELECT tenant_id, arrived_at FROM tenant_state WHERE tenant_id = ANY($1) AND state = 'active')`

func each[T any](ctx context.Context, tx pgx.Tx, what, sql string, tenantIDs []uuid.UUID, take func(T)) error {
	rows, err := tx.Query(ctx, sql, tenantIDs)
	if err != nil {
		return fmt.Errorf("read the %s: %w", what, err)
	}
	defer rows.Close()
	for rows.Next() {
		row, err := pgx.RowToStructByPos[T](rows)
		if err != nil {
			return fmt.Errorf("read the %s: %w", what, err)
		}
		take(row)
	}
	return rows.Err()
}

func (c *checker) readRequests(ctx context.Context, tx pgx.Tx) error {
	return each(ctx, tx, "requests", requestsSQL, c.tenantIDs, func(r requestRow) {
		c.rows[r.ID] = r
		if !r.IsPart { // which has the correlation id of its request
			c.correlations[r.Correlation]++
		}
		if r.Key != "" {
			ref := keyRef{r.TenantID, r.Key}
			c.keys[ref] = append(c.keys[ref], r.ID)
		}
	})
}

func (c *checker) readReservations(ctx context.Context, tx pgx.Tx) error {
	return each(ctx, tx, "reservations", reservationsSQL, c.tenantIDs, func(r reservationRow) { c.reserved[r.ID] = r })
}

func (c *checker) readAudit(ctx context.Context, tx pgx.Tx) error {
	return each(ctx, tx, "audit record", auditSQL, c.tenantIDs, func(a auditRow) {
		c.record = append(c.record, a)
		if a.Action == "reservation.held" || a.Action == "request.failed" {
			c.decided[a.Target] = a
		}
		if a.Correlation != "" {
			target := a.Target
			if a.Action == "stock.adjusted" {
				target = uuid.Nil // the caller does not know a stock's id
			}
			c.effects[effect{a.Correlation, a.Action, target}]++
		}
	})
}

func (c *checker) readStocks(ctx context.Context, tx pgx.Tx) error {
	return each(ctx, tx, "stocks", stocksSQL, c.tenantIDs, func(s stockRow) {
		c.stock[traffic.StockRef{TenantID: s.TenantID, Variant: s.Variant}] = s
	})
}

// verify runs the checks of package verify, as operators do.
func (c *checker) verify(ctx context.Context, db *pgxpool.Pool) error {
	report, err := verify.Run(ctx, db, verify.Config{})
	if err != nil {
		return errors.Join(errors.New("verify could not be run"), err)
	}
	for _, found := range report.Checks {
		if found.Broken > 0 {
			sample := ""
			if len(found.Sample) > 0 {
				sample = string(found.Sample[0])
			}
			c.findings.Add(RuleVerify, "%s: %d rows, such as %s", found.Name, found.Broken, sample)
		}
	}
	return nil
}
