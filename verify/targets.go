package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A reservation, its request and their audit rows share one id, because a hold
// has the id of its request. The pass over the targets reads the three tables
// in the order of (tenant, id), targetsMax ids at a time, and each row once. A
// target check is a condition over what one id has:
//
//	key  its tenant_id and id
//	r    the reservation, or NULLs
//	q    the request, or NULLs
//	a    the summary of its audit rows; see recordOfTarget
type targetCheck struct{ name, meaning, broken string }

// targetsMax is how many ids one statement checks.
const targetsMax = 10_000

// nextTargetsSQL selects the next ids of the three tables. Each sub-select
// reads the primary key in order, so it has every id up to its last one.
const nextTargetsSQL = `
SELECT tenant_id, id
FROM (
    (SELECT tenant_id, reservation_id AS id FROM reservations
     WHERE (tenant_id, reservation_id) > (@tenant::uuid, @id::uuid) ORDER BY tenant_id, reservation_id LIMIT @limit)
    UNION
    (SELECT tenant_id, request_id FROM reservation_requests
     WHERE (tenant_id, request_id) > (@tenant::uuid, @id::uuid) ORDER BY tenant_id, request_id LIMIT @limit)
    UNION
    (SELECT DISTINCT tenant_id, target_id FROM audit_log
     WHERE (tenant_id, target_id) > (@tenant::uuid, @id::uuid) ORDER BY tenant_id, target_id LIMIT @limit)
) AS next
ORDER BY tenant_id, id
LIMIT @limit`

// changedTargetsSQL selects the ids of the next audit rows. An id that changed
// several times may be selected several times.
const changedTargetsSQL = `
SELECT tenant_id, target_id, max(audit_id) AS audit_id
FROM (
    SELECT a.tenant_id, a.target_id, a.audit_id
    FROM audit_log AS a
    WHERE a.audit_id > @after
    ORDER BY a.audit_id
    FETCH FIRST (@limit) ROWS WITH TIES
) AS changed
GROUP BY tenant_id, target_id`

// undecidedTargetsSQL selects the requests above the low-water marks that are
// not decided, which have no audit row yet.
const undecidedTargetsSQL = `
SELECT r.tenant_id, r.request_id
FROM lane_slots AS s
CROSS JOIN LATERAL (
    SELECT one.tenant_id, one.request_id
    FROM reservation_requests AS one
    WHERE one.lane = s.lane AND one.slot = s.slot AND one.sequence > s.low_water AND one.status IN ('queued', 'processing')
    OFFSET 0
) AS r
WHERE (r.tenant_id, r.request_id) > (@tenant::uuid, @id::uuid)
ORDER BY r.tenant_id, r.request_id
LIMIT @limit`

// recordOfTarget summarizes the audit rows of an id: how many there are of its
// hold, its ending and its failure; when and under which audit id each was
// recorded; the last one of the hold, what the failure recorded; and whether a
// row does not start from the state that the previous one recorded.
//
// The primary key has the rows in their order, so nothing is sorted.
const recordOfTarget = `
    SELECT summary.*, rows[cardinality(rows)] AS last,
           CASE rows[cardinality(rows)].action
               WHEN 'reservation.extended' THEN 'held'
               WHEN 'reservation.resized' THEN 'held'
               WHEN 'reservation.moved' THEN 'held'
               WHEN 'reservation.returned' THEN 'committed'
               ELSE substr(rows[cardinality(rows)].action, length('reservation.') + 1)
           END AS last_status,
           not_its_action OR CASE WHEN cardinality(rows) > 1 THEN befores[2:] <> afters[:cardinality(rows) - 1] END AS unchained
    FROM (
        SELECT count(*) FILTER (WHERE action = 'reservation.held') AS held_rows,
               min(audit_id) FILTER (WHERE action = 'reservation.held') AS held_id,
               min(created_at) FILTER (WHERE action = 'reservation.held') AS held_recorded_at,
               count(*) FILTER (WHERE ending) AS ending_rows,
               min(action) FILTER (WHERE ending) AS ending,
               min(audit_id) FILTER (WHERE ending) AS ended_id,
               min(created_at) FILTER (WHERE ending) AS ended_recorded_at,
               max(created_at) FILTER (WHERE of_hold) AS reservation_recorded_at,
               sum((before->>'quantity')::bigint - quantity) FILTER (WHERE action = 'reservation.resized') AS reduced_by,
               count(*) FILTER (WHERE action = 'reservation.moved') AS moved_rows,
               array_agg(line.row) FILTER (WHERE of_hold) AS rows,
               array_agg(` + stateBefore + `) FILTER (WHERE of_hold) AS befores,
               array_agg(` + stateAfter + `) FILTER (WHERE of_hold) AS afters,
               bool_or(` + notItsAction + `) FILTER (WHERE of_hold) AS not_its_action,
               count(*) FILTER (WHERE action = 'request.failed') AS failed_rows,
               (array_agg(after) FILTER (WHERE action = 'request.failed'))[1] AS failure,
               max(created_at) FILTER (WHERE NOT of_hold AND action <> 'request.retried') AS request_recorded_at,
               (array_agg(after->>'retried_by') FILTER (WHERE action = 'request.retried'))[1] AS retried_by,
               max(created_at) FILTER (WHERE action = 'request.retried') AS retry_recorded_at
        FROM (
            SELECT one AS row, one.*, one.action LIKE 'reservation.%' AS of_hold,
                   one.action IN ('reservation.committed', 'reservation.released', 'reservation.expired') AS ending
            FROM audit_log AS one
            WHERE one.tenant_id = key.tenant_id AND one.target_id = key.id
              AND (one.action LIKE 'reservation.%' OR one.action LIKE 'request.%')
            ORDER BY one.audit_id
        ) AS line
    ) AS summary
    OFFSET 0`

// stateBefore and stateAfter are the state of a reservation ahead of an audit
// row and after it, beginning with whether it is held. notItsAction reports
// whether the row is not what its action writes.
const (
	stateBefore = `CASE WHEN action <> 'reservation.held' THEN ROW(
                   action <> 'reservation.returned', resource_kind, resource_key, resource_window,
                   CASE WHEN before ? 'holder_id' THEN before->>'holder_id' ELSE holder_id END,
                   CASE WHEN before ? 'quantity' THEN (before->>'quantity')::bigint ELSE quantity END,
                   CASE WHEN before ? 'expires_at' THEN (before->>'expires_at')::timestamptz ELSE expires_at END,
                   CASE WHEN before ? 'checkout_id' THEN (before->>'checkout_id')::uuid ELSE checkout_id END,
                   CASE WHEN before ? 'unit_ids' THEN nullif(before->'unit_ids', 'null') ELSE unit_ids END) END`
	stateAfter = `ROW(action IN ('reservation.held', 'reservation.extended', 'reservation.resized', 'reservation.moved'),
                   resource_kind, resource_key, resource_window, holder_id, quantity, expires_at, checkout_id, unit_ids)`
	notItsAction = `action NOT IN ('reservation.held', 'reservation.extended', 'reservation.resized', 'reservation.moved', 'reservation.committed',
                       'reservation.returned', 'reservation.released', 'reservation.expired')
                   OR before IS NOT NULL AND action = 'reservation.held'
                   OR (release_reason IS NOT NULL) <> (action IN ('reservation.released', 'reservation.expired'))
                   OR before - ARRAY['holder_id', 'quantity', 'expires_at', 'checkout_id', 'unit_ids'] <> '{}'
                   OR num_nulls(resource_kind, resource_key, holder_id, quantity, expires_at) > 0`
)

// shownTargets is how a target is shown in a sample.
const shownTargets = `jsonb_strip_nulls(jsonb_build_object(
    'tenant_id', key.tenant_id, 'id', key.id, 'status', r.status, 'release_reason', r.release_reason, 'resource_kind', r.resource_kind,
    'resource_key', r.resource_key, 'holder_id', r.holder_id, 'quantity', r.quantity, 'unit_ids', r.unit_ids, 'checkout_id', r.checkout_id,
    'first_held_at', r.first_held_at, 'held_at', r.held_at, 'expires_at', r.expires_at, 'ended_at', r.ended_at,
    'request_status', q.status, 'request_reason', q.reason, 'request_quantity', q.quantity, 'cart_id', q.cart_id, 'variant_id', q.variant_id,
    'lane', q.lane, 'slot', q.slot, 'sequence', q.sequence, 'created_at', q.created_at, 'updated_at', q.updated_at, 'retry_of', q.retry_of,
    'claim_expires_at', q.claim_expires_at, 'held_rows', a.held_rows, 'held_id', a.held_id, 'ending', a.ending, 'ending_rows', a.ending_rows,
    'ended_id', a.ended_id, 'failed_rows', a.failed_rows, 'recorded', coalesce(to_jsonb(a.last), a.failure)))`

// ofTargets looks each id up. OFFSET 0 makes the planner do that, instead of
// reading whole tables for a piece of them.
const ofTargets = `
FROM unnest(@tenants::uuid[], @ids::uuid[]) AS key (tenant_id, id)
CROSS JOIN LATERAL (` + recordOfTarget + `) AS a
LEFT JOIN LATERAL (
    SELECT * FROM reservations AS one WHERE one.tenant_id = key.tenant_id AND one.reservation_id = key.id OFFSET 0
) AS r ON true
LEFT JOIN LATERAL (
    SELECT * FROM reservation_requests AS one WHERE one.tenant_id = key.tenant_id AND one.request_id = key.id OFFSET 0
) AS q ON true`

// targetStatement is the statement that makes all checks of a piece. It selects
// the targets that break a check, each with the indexes of these checks.
func targetStatement(checks []targetCheck) string {
	conditions, indexes := make([]string, len(checks)), make([]string, len(checks))
	for i, c := range checks {
		conditions[i] = "(" + c.broken + ")"
		indexes[i] = fmt.Sprintf("CASE WHEN %s THEN %d END", c.broken, i)
	}
	return `
SELECT array_remove(ARRAY[` + strings.Join(indexes, ",\n    ") + `], NULL)::integer[], ` + shownTargets + ofTargets + `
WHERE ` + strings.Join(conditions, "\n   OR ")
}

// target is a key of the pass.
type target struct {
	TenantID, ID [16]byte
}

// targetPass makes the target checks piece by piece.
type targetPass struct {
	run       *run
	statement string
	found     []Check // under run.mu

	mu sync.Mutex // for the position
	// changes is true until the ids are read that changed after the audit id
	// after; last is the last of the ids that nextSQL selects in their order.
	changes bool
	after   int64
	nextSQL string
	last    target
}

// newTargetPass prepares the checks of the pass: of every id of the three
// tables, or of those that the record has changed, and of the requests that are
// not decided.
func newTargetPass(r *run) *targetPass {
	checks := slices.Concat(requestChecks, reservationChecks, recordChecks, laneChecks)
	if r.LifetimeMax > 0 {
		checks = append(checks, lifetimeCheck)
	}
	if r.QueueAgeMax > 0 {
		checks = append(checks, queueAgeCheck)
	}
	checks = append(checks, targetNotes...)
	p := &targetPass{run: r, statement: targetStatement(checks), found: make([]Check, len(checks)), nextSQL: nextTargetsSQL}
	if r.limited {
		p.changes, p.after, p.nextSQL = true, r.report.AfterID, undecidedTargetsSQL
	}
	for i, c := range checks {
		p.found[i] = Check{Name: c.name, Meaning: c.meaning, Sample: []json.RawMessage{}}
	}
	return p
}

// piece checks the next ids, and reports whether there were any left.
func (p *targetPass) piece(ctx context.Context, tx pgx.Tx) (made bool, err error) {
	piece, err := p.next(ctx, tx)
	if err != nil || len(piece) == 0 {
		return false, err
	}
	p.run.step("targets")
	return true, p.check(ctx, tx, piece)
}

// next returns the next ids, none at the end. It moves the position, so that
// the other transaction receives those after them.
func (p *targetPass) next(ctx context.Context, tx pgx.Tx) (piece []target, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changes {
		piece, err = p.nextChanged(ctx, tx)
		if err != nil || len(piece) > 0 {
			return piece, err
		}
		p.changes = false
	}
	rows, err := tx.Query(ctx, p.nextSQL, pgx.NamedArgs{"tenant": p.last.TenantID, "id": p.last.ID, "limit": targetsMax})
	if err != nil {
		return nil, err
	}
	piece, err = pgx.CollectRows(rows, pgx.RowToStructByPos[target])
	if len(piece) > 0 {
		p.last = piece[len(piece)-1]
	}
	return piece, err
}

// nextChanged returns the ids of the next audit rows.
func (p *targetPass) nextChanged(ctx context.Context, tx pgx.Tx) (piece []target, err error) {
	rows, err := tx.Query(ctx, changedTargetsSQL, pgx.NamedArgs{"after": p.after, "limit": targetsMax}) //nolint:rowserrcheck // ForEachRow checks it
	if err != nil {
		return nil, err
	}
	var next target
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&next.TenantID, &next.ID, &last}, func() error {
		piece, p.after = append(piece, next), max(p.after, last)
		return nil
	})
	return piece, err
}

// check makes the checks of one piece.
func (p *targetPass) check(ctx context.Context, tx pgx.Tx, piece []target) error {
	piece = slices.DeleteFunc(piece, func(t target) bool { return slices.Contains(p.run.elsewhere, uuid.UUID(t.TenantID)) })
	tenants, ids := make([][16]byte, len(piece)), make([][16]byte, len(piece))
	for i, t := range piece {
		tenants[i], ids[i] = t.TenantID, t.ID
	}
	args := maps.Clone(p.run.args)
	args["tenants"], args["ids"] = tenants, ids
	rows, err := tx.Query(ctx, p.statement, args) //nolint:rowserrcheck // ForEachRow checks it
	if err != nil {
		return err
	}
	var broken []int32
	var shown json.RawMessage
	_, err = pgx.ForEachRow(rows, []any{&broken, &shown}, func() error {
		p.run.mu.Lock()
		defer p.run.mu.Unlock()
		for _, i := range broken {
			p.found[i].add(shown)
		}
		return nil
	})
	return err
}

// add counts a row that breaks the check.
func (c *Check) add(shown json.RawMessage) {
	if c.Broken < brokenMax {
		c.Broken++
	}
	if len(c.Sample) < sampleMax {
		c.Sample = append(c.Sample, append(json.RawMessage(nil), shown...))
	}
}
