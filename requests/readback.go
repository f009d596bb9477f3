package requests

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
)

// readBackSQL reads the rows that an insert found in its way: an earlier attempt's own, or the first use of the key.
const readBackSQL = `
SELECT ` + columns + `, r.idempotency_key, r.fingerprint
FROM reservation_requests r
JOIN unnest($1::uuid[], $2::uuid[]) AS own (tenant_id, request_id) USING (tenant_id, request_id)
UNION ALL
SELECT ` + columns + `, r.idempotency_key, r.fingerprint
FROM reservation_requests r
JOIN unnest($1::uuid[], $3::text[]) AS used (tenant_id, idempotency_key) USING (tenant_id, idempotency_key)`

// readBack finds, in a second statement because the first can't see them, the rows that stood in the way.
func readBack(ctx context.Context, db Querier, group []Submission, admitted map[Ref]admission) error {
	var lost []Submission
	for _, s := range group {
		if _, ok := admitted[Ref{s.TenantID, s.RequestID}]; !ok {
			lost = append(lost, s)
		}
	}
	args := admitArgs(lost)
	rows, err := db.Query(ctx, readBackSQL, args[0], args[1], args[6])
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
				a = admission{view: View{Request: w.Request}}
			case w.Key == nil || *w.Key != s.IdempotencyKey:
			case slices.Equal(w.Fingerprint, s.Fingerprint[:]):
				a = admission{view: View{Request: w.Request}}
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
