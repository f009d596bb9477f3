package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
)

// admitSQL inserts a group, sorted by (tenant, key) so that two processes that admit the same keys can't deadlock. An
// untracked variant's request is done as it is inserted. A row whose id or key exists is left out.
const admitSQL = `
INSERT INTO reservation_requests AS r (tenant_id, request_id, kind, cart_id, variant_id, quantity, idempotency_key, fingerprint,
                                       correlation_id, actor_id, retry_of, lane, slot, status)
SELECT a.tenant_id, a.request_id, a.kind, a.cart_id, a.variant_id, a.quantity, nullif(a.idempotency_key, ''), a.fingerprint,
       nullif(a.correlation_id, ''), nullif(a.actor_id, ''), a.retry_of,
       CASE WHEN h.slot IS NULL THEN 'normal' ELSE 'hot' END, coalesce(h.slot, d.slot, 0),
       CASE WHEN s.variant_id IS NULL THEN 'queued' ELSE 'done' END
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[], $8::bytea[],
            $9::text[], $10::text[], $11::uuid[])
     WITH ORDINALITY AS a (tenant_id, request_id, kind, cart_id, variant_id, quantity, idempotency_key, fingerprint,
                           correlation_id, actor_id, retry_of, place)
LEFT JOIN hot_variants h ON h.tenant_id = a.tenant_id AND h.variant_id = a.variant_id AND h.state <> 'leaving'
LEFT JOIN diverted_tenants d ON d.tenant_id = a.tenant_id
LEFT JOIN inventory_stocks s ON s.tenant_id = a.tenant_id AND s.variant_id = a.variant_id AND NOT s.tracked
ORDER BY a.place
ON CONFLICT DO NOTHING
RETURNING ` + columns

// readBackSQL reads the rows that an insert found in its way: an earlier attempt's own, or the first use of the key.
const readBackSQL = `
SELECT ` + columns + `, r.idempotency_key, r.fingerprint
FROM reservation_requests r
JOIN unnest($1::uuid[], $2::uuid[]) AS own (tenant_id, request_id) USING (tenant_id, request_id)
UNION ALL
SELECT ` + columns + `, r.idempotency_key, r.fingerprint
FROM reservation_requests r
JOIN unnest($1::uuid[], $3::text[]) AS used (tenant_id, idempotency_key) USING (tenant_id, idempotency_key)`

// admission is what became of one member of a group.
type admission struct {
	request Request
	err     error
}

// admitTx inserts the group, rings the slots that got work, and returns what became of each member under its id.
func admitTx(ctx context.Context, tx pgx.Tx, ringer Ringer, group []Submission) (map[Ref]admission, error) {
	slices.SortStableFunc(group, func(a, b Submission) int {
		return cmp.Or(slices.Compare(a.TenantID[:], b.TenantID[:]), cmp.Compare(a.IdempotencyKey, b.IdempotencyKey))
	})
	args := admitArgs(group)
	var inserted []Request
	foreign := &foreignError{keys: make(map[keyRef]bool)}
	b := &pgx.Batch{}
	b.Queue(horizon.Enter) // before a sequence number is drawn
	b.Queue(admitSQL, args...).Query(func(rows pgx.Rows) (err error) {
		inserted, err = pgx.CollectRows(rows, toRequest)
		return err
	})
	if slices.ContainsFunc(group, func(s Submission) bool { return s.IdempotencyKey != "" }) {
		b.Queue(foreignSQL, args[0], args[6]).Query(func(rows pgx.Rows) error {
			var k keyRef
			_, err := pgx.ForEachRow(rows, []any{&k.TenantID, &k.Key}, func() error { foreign.keys[k] = true; return nil })
			return err
		})
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	if len(foreign.keys) > 0 {
		return nil, foreign
	}
	admitted := make(map[Ref]admission, len(group))
	wakes := make([]Wake, 0, 1)
	for i := range inserted {
		r := &inserted[i]
		admitted[r.Ref()] = admission{request: *r}
		if w := (Wake{r.Lane, r.Slot}); r.Status == Queued && !slices.Contains(wakes, w) {
			wakes = append(wakes, w)
		}
	}
	if len(inserted) < len(group) {
		if err := readBackTx(ctx, tx, group, admitted); err != nil {
			return nil, err
		}
	}
	if len(wakes) > 0 {
		if err := ringer.RingTx(ctx, tx, wakes); err != nil {
			return nil, fmt.Errorf("ring %d slots: %w", len(wakes), err)
		}
	}
	return admitted, nil
}

// readBackTx finds, in a second statement because the first can't see them, the rows that stood in the way.
func readBackTx(ctx context.Context, tx pgx.Tx, group []Submission, admitted map[Ref]admission) error {
	var lost []Submission
	for _, s := range group {
		if _, ok := admitted[Ref{s.TenantID, s.RequestID}]; !ok {
			lost = append(lost, s)
		}
	}
	args := admitArgs(lost)
	rows, err := tx.Query(ctx, readBackSQL, args[0], args[1], args[6])
	if err != nil {
		return err
	}
	type winner struct {
		Request
		Key         *string
		Fingerprint []byte
	}
	winners, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w winner, err error) {
		w.Request, err = scan(row, &w.Key, &w.Fingerprint)
		return w, err
	})
	if err != nil {
		return err
	}
	for _, s := range lost {
		a := admission{err: errPurged}
		for _, w := range winners {
			switch {
			case w.TenantID != s.TenantID:
			case w.RequestID == s.RequestID:
				a = admission{request: w.Request}
			case w.Key == nil || *w.Key != s.IdempotencyKey:
			case slices.Equal(w.Fingerprint, s.Fingerprint[:]):
				a = admission{request: w.Request}
			default:
				a = admission{err: ErrKeyReused}
			}
		}
		admitted[Ref{s.TenantID, s.RequestID}] = a
	}
	return nil
}

// errPurged says that the first use of a key was purged between the two statements.
var errPurged = errors.New("request: the first use of the idempotency key was purged just now")
