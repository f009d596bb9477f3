package requestrows

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/requests"
)

// lookUpSQL reads the rows with which an insert conflicted: the row of an
// earlier attempt, or the first use of the key.
const lookUpSQL = `
SELECT ` + columns + `, r.idempotency_key, r.fingerprint
FROM reservation_requests r
JOIN unnest($1::uuid[], $2::uuid[]) AS own (tenant_id, request_id) USING (tenant_id, request_id)
UNION ALL
SELECT ` + columns + `, r.idempotency_key, r.fingerprint
FROM reservation_requests r
JOIN unnest($1::uuid[], $3::text[]) AS used (tenant_id, idempotency_key) USING (tenant_id, idempotency_key)`

// LookUp returns the results of the submissions that were inserted before, by
// their names. A result is the request under the submission's id or key, or
// ErrKeyReused. The other submissions are not in the map.
func LookUp(ctx context.Context, db Querier, group []Submission) (map[Ref]Result, error) {
	tenants, ids, keys := namesOf(group)
	rows, err := db.Query(ctx, lookUpSQL, tenants, ids, keys)
	if err != nil {
		return nil, err
	}
	type winner struct {
		requests.Request
		Key         *string
		Fingerprint []byte
	}
	winners, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w winner, err error) {
		w.Request, err = scan(row, &w.Key, &w.Fingerprint)
		return w, err
	})
	if err != nil {
		return nil, err
	}
	found := make(map[Ref]Result, len(group))
	for _, s := range group {
		for _, w := range winners {
			switch {
			case w.TenantID != s.TenantID:
			case w.RequestID == s.RequestID:
				found[s.Ref()] = Result{View: requests.View{Request: w.Request}}
			case w.Key == nil || *w.Key != s.IdempotencyKey:
			case slices.Equal(w.Fingerprint, s.Fingerprint[:]):
				found[s.Ref()] = Result{View: requests.View{Request: w.Request}}
			default:
				found[s.Ref()] = Result{Err: ErrKeyReused}
			}
		}
	}
	return found, addRetried(ctx, db, group, found)
}

// namesOf returns the ids and the keys of the submissions, as columns.
func namesOf(group []Submission) (tenants, ids [][16]byte, keys []string) {
	tenants, ids, keys = make([][16]byte, len(group)), make([][16]byte, len(group)), make([]string, len(group))
	for i := range group {
		tenants[i], ids[i], keys[i] = group[i].TenantID, group[i].RequestID, group[i].IdempotencyKey
	}
	return tenants, ids, keys
}
