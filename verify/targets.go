package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

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
//	a    a summary of its audit rows, or NULLs; see recordOfTargets
//	last, failure
//	     the reservation's last audit row, and the request's failure, or NULLs
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
    LIMIT @limit
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

// recordOfTargets summarizes the audit rows of each id: how many there are of
// its hold, its ending and its failure; when and under which audit id each was
// recorded; and whether a row does not start from the state that the previous
// one recorded.
//
// OFFSET 0 makes the planner look each id up, instead of reading the whole
// table for a piece of it.
const recordOfTargets = `
WITH key AS MATERIALIZED (
    SELECT *
    FROM unnest(@tenants::uuid[], @ids::uuid[]) WITH ORDINALITY AS key (tenant_id, id, place)
), line AS MATERIALIZED (
    SELECT key.place, a.audit_id, a.created_at, a.action, a.kind, a.before, a.after,
           lag(a.after) OVER targets AS left_by_last, lead(a.audit_id) OVER targets AS next_id
    FROM key
    CROSS JOIN LATERAL (
        SELECT one.audit_id, one.created_at, one.action, one.before, one.after,
               CASE WHEN one.action IN ('reservation.committed', 'reservation.released', 'reservation.expired') THEN 'ending'
                    WHEN one.action LIKE 'reservation.%' THEN 'reservation'
                    ELSE 'request' END AS kind
        FROM audit_log AS one
        WHERE one.tenant_id = key.tenant_id AND one.target_id = key.id
          AND (one.action LIKE 'reservation.%' OR one.action LIKE 'request.%')
        OFFSET 0
    ) AS a
    WINDOW targets AS (PARTITION BY key.place, a.kind = 'request' ORDER BY a.audit_id)
), record AS MATERIALIZED (
    SELECT place,
           count(*) FILTER (WHERE action = 'reservation.held') AS held_rows,
           min(audit_id) FILTER (WHERE action = 'reservation.held') AS held_id,
           min(created_at) FILTER (WHERE action = 'reservation.held') AS held_recorded_at,
           count(*) FILTER (WHERE kind = 'ending') AS ending_rows,
           min(action) FILTER (WHERE kind = 'ending') AS ending,
           min(audit_id) FILTER (WHERE kind = 'ending') AS ended_id,
           min(created_at) FILTER (WHERE kind = 'ending') AS ended_recorded_at,
           max(created_at) FILTER (WHERE kind <> 'request') AS reservation_recorded_at,
           count(*) FILTER (WHERE action = 'request.failed') AS failed_rows,
           max(created_at) FILTER (WHERE kind = 'request' AND action <> 'request.retried') AS request_recorded_at,
           (array_agg(after->>'retried_by') FILTER (WHERE action = 'request.retried'))[1] AS retried_by,
           max(created_at) FILTER (WHERE action = 'request.retried') AS retry_recorded_at,
           bool_or(kind <> 'request' AND (
               (left_by_last IS NOT NULL AND before IS DISTINCT FROM left_by_last)
               OR (before IS NULL) <> (action = 'reservation.held')
               OR before->>'status' <> 'held'
               OR after->>'status' IS DISTINCT FROM
                  CASE action WHEN 'reservation.extended' THEN 'held' ELSE substr(action, length('reservation.') + 1) END
           )) AS unchained
    FROM line
    GROUP BY place
)`

// shownTargets is how a target is shown in a sample.
const shownTargets = `jsonb_strip_nulls(jsonb_build_object(
    'tenant_id', key.tenant_id, 'id', key.id, 'status', r.status, 'release_reason', r.release_reason, 'resource_kind', r.resource_kind,
    'resource_key', r.resource_key, 'holder_id', r.holder_id, 'quantity', r.quantity, 'unit_ids', r.unit_ids, 'checkout_id', r.checkout_id,
    'first_held_at', r.first_held_at, 'held_at', r.held_at, 'expires_at', r.expires_at, 'ended_at', r.ended_at,
    'request_status', q.status, 'request_reason', q.reason, 'request_quantity', q.quantity, 'cart_id', q.cart_id, 'variant_id', q.variant_id,
    'lane', q.lane, 'slot', q.slot, 'sequence', q.sequence, 'created_at', q.created_at, 'updated_at', q.updated_at, 'retry_of', q.retry_of,
    'claim_expires_at', q.claim_expires_at, 'held_rows', a.held_rows, 'held_id', a.held_id, 'ending', a.ending, 'ending_rows', a.ending_rows,
    'ended_id', a.ended_id, 'failed_rows', a.failed_rows, 'recorded', coalesce(last.after, failure.after)))`

// ofTargets looks each id up; see recordOfTargets.
const ofTargets = `
FROM key
LEFT JOIN record AS a ON a.place = key.place
LEFT JOIN line AS last ON last.place = key.place AND last.kind <> 'request' AND last.next_id IS NULL
LEFT JOIN line AS failure ON failure.place = key.place AND failure.action = 'request.failed' AND failure.left_by_last IS NULL
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
	return recordOfTargets + `
SELECT array_remove(ARRAY[` + strings.Join(indexes, ",\n    ") + `], NULL)::integer[], ` + shownTargets + ofTargets + `
WHERE ` + strings.Join(conditions, "\n   OR ")
}

// target is a key of the pass.
type target struct {
	TenantID, ID [16]byte
}

// targetPass makes the target checks piece by piece.
type targetPass struct {
	tx        pgx.Tx
	args      pgx.NamedArgs
	statement string
	found     []Check
	read      func()
}

// newTargetPass prepares the checks of the pass. read is called after each
// piece.
func newTargetPass(tx pgx.Tx, checks []targetCheck, args pgx.NamedArgs, read func()) *targetPass {
	p := &targetPass{tx: tx, args: args, statement: targetStatement(checks), found: make([]Check, len(checks)), read: read}
	for i, c := range checks {
		p.found[i] = Check{Name: c.name, Meaning: c.meaning, Sample: []json.RawMessage{}}
	}
	return p
}

// all checks every id of the three tables.
func (p *targetPass) all(ctx context.Context) error { return p.walk(ctx, nextTargetsSQL) }

// changed checks the ids that the record has changed after an audit id, and
// the requests that are not decided.
func (p *targetPass) changed(ctx context.Context, after int64) error {
	for {
		rows, err := p.tx.Query(ctx, changedTargetsSQL, pgx.NamedArgs{"after": after, "limit": targetsMax})
		if err != nil {
			return err
		}
		var next target
		var last int64
		var piece []target
		if _, err := pgx.ForEachRow(rows, []any{&next.TenantID, &next.ID, &last}, func() error {
			piece, after = append(piece, next), max(after, last)
			return nil
		}); err != nil {
			return err
		}
		if len(piece) == 0 {
			return p.walk(ctx, undecidedTargetsSQL)
		}
		if err := p.check(ctx, piece); err != nil {
			return err
		}
	}
}

// walk checks the ids that a statement selects in their order.
func (p *targetPass) walk(ctx context.Context, nextSQL string) error {
	for last := (target{}); ; {
		rows, err := p.tx.Query(ctx, nextSQL, pgx.NamedArgs{"tenant": last.TenantID, "id": last.ID, "limit": targetsMax})
		if err != nil {
			return err
		}
		piece, err := pgx.CollectRows(rows, pgx.RowToStructByPos[target])
		if err != nil || len(piece) == 0 {
			return err
		}
		if err := p.check(ctx, piece); err != nil {
			return err
		}
		last = piece[len(piece)-1]
	}
}

// check makes the checks of one piece.
func (p *targetPass) check(ctx context.Context, piece []target) error {
	tenants, ids := make([][16]byte, len(piece)), make([][16]byte, len(piece))
	for i, t := range piece {
		tenants[i], ids[i] = t.TenantID, t.ID
	}
	p.args["tenants"], p.args["ids"] = tenants, ids
	rows, err := p.tx.Query(ctx, p.statement, p.args)
	if err != nil {
		return err
	}
	var broken []int32
	var shown json.RawMessage
	_, err = pgx.ForEachRow(rows, []any{&broken, &shown}, func() error {
		for _, i := range broken {
			p.found[i].add(shown)
		}
		return nil
	})
	p.read()
	return err
}

// add counts a row that breaks the check.
func (c *Check) add(shown json.RawMessage) {
	if c.Broken < BrokenMax {
		c.Broken++
	}
	if len(c.Sample) < SampleMax {
		c.Sample = append(c.Sample, append(json.RawMessage(nil), shown...))
	}
}
