package requestrows

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/requests"
)

// The statements that insert a group. It is sorted by (tenant, retry_of, key) so
// that two processes that admit the same keys, or retries of the same requests,
// can't deadlock.
//
// A request that is not decided is queued. But one for more units of an
// untracked variant is inserted as done. One that sets the quantity is queued,
// because the cart may hold units from the time when the variant was tracked,
// which it gives back.
const (
	insertInto = `
INSERT INTO reservation_requests AS r (request_id, kind, cart_id, quantity, idempotency_key, fingerprint, correlation_id, actor_id,
                                       retry_of, trace_parent, units, lines, parent_id, line, customer_id, kit_id, created_at, updated_at, reason, status, tenant_id, variant_id, lane, slot)
SELECT a.request_id, coalesce(a.kind, ($2::text[])[1]), coalesce(a.cart_id, ($3::text[])[1]), coalesce(a.quantity, ($4::integer[])[1]),
       nullif(coalesce(a.idempotency_key, ($5::text[])[1]), ''), a.fingerprint, nullif(coalesce(a.correlation_id, ($7::text[])[1]), ''),
       nullif(coalesce(a.actor_id, ($8::text[])[1]), ''), a.retry_of, a.trace_parent, a.units::jsonb, a.lines::jsonb, a.parent_id, a.line, nullif(coalesce(a.customer_id, ($18::text[])[1]), ''), a.kit_id,
       coalesce($12::timestamptz, clock_timestamp()), coalesce($13::timestamptz, clock_timestamp()),
       nullif(nullif(coalesce(a.outcome, ($14::text[])[1]), 'queued'), 'done'),
       CASE coalesce(a.outcome, ($14::text[])[1])
           WHEN 'queued' THEN CASE WHEN s.variant_id IS NOT NULL AND coalesce(a.kind, ($2::text[])[1]) IN ('add', 'wait') THEN 'done' ELSE 'queued' END
           WHEN 'done' THEN 'done' ELSE 'failed' END`

	rowColumns = `$1::uuid[], $2::text[], $3::text[], $4::integer[], $5::text[], $6::bytea[], $7::text[], $8::text[], $9::uuid[],
            $10::text[], $11::text[], $14::text[], $15::text[], $16::uuid[], $17::smallint[], $18::text[], $19::text[]`
	rowNames = `request_id, kind, cart_id, quantity, idempotency_key, fingerprint, correlation_id, actor_id, retry_of,
                           trace_parent, units, outcome, lines, parent_id, line, customer_id, kit_id`

	untrackedJoin = `
LEFT JOIN inventory_stocks s ON s.tenant_id = a.tenant_id AND s.variant_id = a.variant_id AND NOT s.tracked`

	// insertVariantSQL inserts a group for one variant, whose stream and stock
	// it looks up once.
	insertVariantSQL = `
WITH s AS MATERIALIZED (
    SELECT s.variant_id, ` + lanes.RouteColumns + `
    FROM (SELECT $20::uuid AS tenant_id, $21::text AS variant_id) a
    ` + lanes.RouteJoin + untrackedJoin + `
)` + insertInto + `, $20, $21, s.lane, s.slot
FROM s
CROSS JOIN unnest(` + rowColumns + `)
     WITH ORDINALITY AS a (` + rowNames + `, place)
ORDER BY a.place`

	// insertVariantsSQL inserts a group for several variants.
	insertVariantsSQL = insertInto + `, a.tenant_id, a.variant_id, ` + lanes.RouteColumns + `
FROM unnest(` + rowColumns + `, $20::uuid[], $21::text[])
     WITH ORDINALITY AS a (` + rowNames + `, tenant_id, variant_id, place)
` + lanes.RouteJoin + untrackedJoin + `
ORDER BY a.place`

	// returning is what insertGroup.toInserted reads.
	returning = `
RETURNING r.tenant_id, r.request_id, r.sequence, r.lane, r.slot, r.status, r.created_at, r.updated_at,
          ` + lanes.LeavingSlot
)

// ignoring makes an insert leave out a row whose id or key exists. Without it
// the insert fails there (SQLSTATE 23505), and saves a WAL record and an index
// lookup per row.
const ignoring = ` ON CONFLICT DO NOTHING`

const (
	addVariantSQL  = insertVariantSQL + ignoring + returning
	addVariantsSQL = insertVariantsSQL + ignoring + returning
	newVariantSQL  = insertVariantSQL + returning
	newVariantsSQL = insertVariantsSQL + returning
)

// decidedGroup is what was decided about requests before they are inserted.
type decidedGroup struct {
	began, at time.Time // of the transaction, and of the decision
	views     map[Ref]requests.View
}

// outcome is the status with which the request is inserted, or the reason for
// which it failed.
func (d *decidedGroup) outcome(ref Ref) string {
	if d == nil {
		return string(requests.Queued)
	}
	v, decided := d.views[ref]
	switch {
	case !decided:
		return string(requests.Queued)
	case v.Reason != "":
		return string(v.Reason)
	default:
		return string(requests.Done)
	}
}

// queueInsert adds to b the statement that inserts the group: as it was decided,
// or queued if decided is nil. If isNew is set, the statement fails with
// SQLSTATE 23505 if one of the requests exists. Otherwise it leaves that one
// out.
func (n *insertGroup) queueInsert(b *pgx.Batch, isNew bool, decided *decidedGroup) {
	args := columnsOf(n.Group, decided)
	first, sql := &n.Group[0], addVariantsSQL
	oneVariant := !slices.ContainsFunc(n.Group, func(s Submission) bool { return s.VariantID != first.VariantID || s.TenantID != first.TenantID })
	switch {
	case oneVariant && isNew:
		sql = newVariantSQL
	case oneVariant:
		sql = addVariantSQL
	case isNew:
		sql = newVariantsSQL
	}
	if oneVariant {
		args = append(args, [16]byte(first.TenantID), first.VariantID)
	} else {
		tenants, variants := make([][16]byte, len(n.Group)), make([]string, len(n.Group))
		for i := range n.Group {
			tenants[i], variants[i] = n.Group[i].TenantID, n.Group[i].VariantID
		}
		args = append(args, tenants, variants)
	}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		n.inserted, err = pgx.CollectRows(rows, n.toInserted)
		return err
	})
}

// columnsOf returns the columns of the group, in the order of the statements'
// parameters, without the variants. A column of equal values is shortened, and
// one without values is nil.
func columnsOf(group []Submission, decided *decidedGroup) []any {
	n := len(group)
	text := make([]string, 7*n)
	column := func(i int) []string { return text[i*n : (i+1)*n] }
	kinds, carts, keys, correlations, actors, outcomes, customers := column(0), column(1), column(2), column(3), column(4), column(5), column(6)
	ids, quantities := make([][16]byte, n), make([]int32, n)
	var fingerprints [][]byte
	var retries, parents []*[16]byte
	var traces, units, lines, kits []*string
	var places []*int16
	for i := range group {
		s := &group[i]
		ids[i], quantities[i], carts[i], keys[i] = s.RequestID, s.Quantity, s.CartID, s.IdempotencyKey
		correlations[i], actors[i], customers[i] = s.CorrelationID, s.ActorID, s.CustomerID
		kinds[i] = string(cmp.Or(s.Kind, requests.Add))
		outcomes[i] = decided.outcome(s.Ref())
		if s.IdempotencyKey != "" {
			fingerprints = put(fingerprints, i, n, s.Fingerprint[:])
		}
		if s.RetryOf != uuid.Nil {
			retries = put(retries, i, n, (*[16]byte)(&s.RetryOf))
		}
		if s.traceParent != "" {
			traces = put(traces, i, n, &s.traceParent)
		}
		if s.Units != nil {
			units = put(units, i, n, new(string(toJSON(s.Units))))
		}
		if s.Lines != nil {
			lines = put(lines, i, n, new(string(toJSON(s.Lines))))
		}
		if s.ParentID != uuid.Nil {
			parents, places = put(parents, i, n, (*[16]byte)(&s.ParentID)), put(places, i, n, &s.Line)
		}
		if s.KitID != "" {
			kits = put(kits, i, n, &s.KitID)
		}
	}
	var created, updated *time.Time // the clock when a row is inserted, if nil
	if decided != nil {
		created, updated = &decided.began, &decided.at
	}
	return []any{
		ids, pg.Collapse(kinds), pg.Collapse(carts), pg.Collapse(quantities), pg.Collapse(keys), fingerprints,
		pg.Collapse(correlations), pg.Collapse(actors), retries, traces, units, created, updated, pg.Collapse(outcomes), lines, parents, places, pg.Collapse(customers), kits,
	}
}

// put sets a value of a column of n rows, which it makes for the first value.
func put[T any](column []T, i, n int, value T) []T {
	if column == nil {
		column = make([]T, n)
	}
	column[i] = value
	return column
}
