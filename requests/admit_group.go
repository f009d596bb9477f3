package requests

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/isolation"
)

// insertSQL inserts a group, sorted by (tenant, key) so that two processes that admit the same keys can't deadlock. An
// untracked variant's request is done as it is inserted. Most of the time no tenant is diverted: then none is looked for.
const insertSQL = `
INSERT INTO reservation_requests AS r (tenant_id, request_id, kind, cart_id, variant_id, quantity, idempotency_key, fingerprint,
                                       correlation_id, actor_id, retry_of, trace_parent, lane, slot, status)
SELECT a.tenant_id, a.request_id, a.kind, a.cart_id, a.variant_id, a.quantity, nullif(a.idempotency_key, ''), a.fingerprint,
       nullif(a.correlation_id, ''), nullif(a.actor_id, ''), a.retry_of, a.trace_parent,
       CASE WHEN h.slot IS NULL THEN 'normal' ELSE 'hot' END,
       coalesce(h.slot, CASE WHEN EXISTS (SELECT FROM diverted_tenants)
                             THEN (SELECT d.slot FROM diverted_tenants d WHERE d.tenant_id = a.tenant_id) END, 0),
       CASE WHEN s.variant_id IS NULL THEN 'queued' ELSE 'done' END
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[], $8::bytea[],
            $9::text[], $10::text[], $11::uuid[], $12::text[])
     WITH ORDINALITY AS a (tenant_id, request_id, kind, cart_id, variant_id, quantity, idempotency_key, fingerprint,
                           correlation_id, actor_id, retry_of, trace_parent, place)
LEFT JOIN hot_variants h ON h.tenant_id = a.tenant_id AND h.variant_id = a.variant_id AND h.state <> 'leaving'
LEFT JOIN inventory_stocks s ON s.tenant_id = a.tenant_id AND s.variant_id = a.variant_id AND NOT s.tracked
ORDER BY a.place`

const returning = `
RETURNING r.tenant_id, r.request_id, r.sequence, r.lane, r.slot, r.status, r.created_at, r.updated_at`

// admitSQL leaves out a row whose id or key exists. admitNewSQL fails, and costs a record of the log and an index lookup
// less for each row.
const (
	admitSQL    = insertSQL + ` ON CONFLICT DO NOTHING` + returning
	admitNewSQL = insertSQL + returning
)

// admission is what became of one member of a group.
type admission struct {
	view View
	err  error
}

// entry is a group on its way into the status table.
type entry struct {
	group    []Submission // in the order of (tenant, key)
	args     []any
	keyed    bool         // some member has an idempotency key
	sql      string       // admitSQL; or admitNewSQL if no member was admitted before, as far as is known
	places   map[Ref]int  // of the members in the group; the first of two with one name is inserted
	inserted []Request    // nil until they are
	foreign  map[Key]bool // keys of the group that belong to calls which finish at once
	views    map[Ref]View // of those that were decided
}

func newEntry(group []Submission) *entry {
	slices.SortStableFunc(group, func(a, b Submission) int {
		return cmp.Or(slices.Compare(a.TenantID[:], b.TenantID[:]), cmp.Compare(a.IdempotencyKey, b.IdempotencyKey))
	})
	e := &entry{group: group, sql: admitSQL, args: admitArgs(group), places: make(map[Ref]int, len(group))}
	for i, s := range slices.Backward(group) {
		e.places[Ref{s.TenantID, s.RequestID}] = i
		e.keyed = e.keyed || s.IdempotencyKey != ""
	}
	return e
}

// queue adds to b what inserts the group, but for the members whose keys belong to calls that finish at once.
func (e *entry) queue(b *pgx.Batch) {
	isolation.Queue(b) // an older snapshot misses a route or a key that was committed since
	b.Queue(enterSQL)  // before a sequence number is drawn
	b.Queue(e.sql, e.args...).Query(func(rows pgx.Rows) (err error) {
		e.inserted, err = pgx.CollectRows(rows, toAdmitted)
		return err
	})
	if !e.keyed {
		return
	}
	b.Queue(takeBackForeignSQL, e.args[0], e.args[1], e.args[6]).Query(func(rows pgx.Rows) error {
		var k Key
		_, err := pgx.ForEachRow(rows, []any{&k.TenantID, &k.Key}, func() error {
			if e.foreign == nil {
				e.foreign = make(map[Key]bool)
			}
			e.foreign[k] = true
			return nil
		})
		if len(e.foreign) > 0 {
			e.inserted = slices.DeleteFunc(e.inserted, func(r Request) bool { return e.foreign[e.group[e.places[r.Ref()]].key()] })
		}
		return err
	})
}

// outcome is what became of each member, under its id, and which slots got work. Those who were refused have no row.
func (e *entry) outcome(ctx context.Context, db Querier, refused map[Ref]error) (admitted map[Ref]admission, wakes []Wake, err error) {
	admitted = make(map[Ref]admission, len(e.group))
	for ref, why := range refused {
		admitted[ref] = admission{err: why}
	}
	if len(e.foreign) > 0 {
		for _, s := range e.group {
			if e.foreign[s.key()] {
				admitted[Ref{s.TenantID, s.RequestID}] = admission{err: ErrKeyReused}
			}
		}
	}
	for i := range e.inserted {
		r := e.group[e.places[e.inserted[i].Ref()]].request(e.inserted[i])
		view, decided := e.views[r.Ref()]
		if !decided {
			view.Request = r
		}
		admitted[r.Ref()] = admission{view: view}
		if w := (Wake{r.Lane, r.Slot}); view.Status == Queued && !slices.Contains(wakes, w) {
			wakes = append(wakes, w)
		}
	}
	if len(admitted) < len(e.group) {
		err = readBack(ctx, db, e.group, admitted)
	}
	return admitted, wakes, err
}

// admitAtOnce admits the group in one round trip: the statements of a batch are one transaction, which ends with it.
func (e *entry) admitAtOnce(ctx context.Context, db *pgxpool.Conn) (map[Ref]admission, []Wake, error) {
	b := &pgx.Batch{}
	e.queue(b)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, err
	}
	return e.outcome(ctx, db, nil)
}

// admitTx admits the group in tx, and rings the slots that got work.
func admitTx(ctx context.Context, tx pgx.Tx, ringer Ringer, group []Submission) (map[Ref]admission, error) {
	e := newEntry(group)
	b := &pgx.Batch{}
	e.queue(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	admitted, wakes, err := e.outcome(ctx, tx, nil)
	if err == nil && len(wakes) > 0 {
		if err = ringer.RingTx(ctx, tx, wakes); err != nil {
			err = fmt.Errorf("ring %d slots: %w", len(wakes), err)
		}
	}
	return admitted, err
}
