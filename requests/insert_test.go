package requests_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queuestest"
	"github.com/holdfast/holdfast/requests"
)

// insert inserts a group in a transaction, withdraws the refused requests, and
// returns the results.
func insert(t *testing.T, b *queuestest.Bench, refused map[requests.Ref]error, group ...requests.Submission) map[requests.Ref]requests.Result {
	t.Helper()
	insertion := requests.Insertion{Group: group}
	if len(refused) > 0 {
		insertion.Decide = func(context.Context, pgx.Tx, []requests.Request) (requests.Decisions, error) {
			return requests.Decisions{Refused: refused}, nil
		}
	}
	var inserted requests.Inserted
	pgtest.Must(t, pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) (err error) {
		inserted, err = insertion.InsertTx(t.Context(), tx)
		return err
	}))
	return inserted.Results
}

func TestInsertionResults(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	shoe := func(key, body string) requests.Submission {
		s := requests.Submission{TenantID: b.Tenant, RequestID: requests.NewID(), CartID: "a", VariantID: "shoe", Quantity: 1, IdempotencyKey: key}
		copy(s.Fingerprint[:], body)
		return s
	}
	before := shoe("key", "body")
	insert(t, b, nil, before)
	repeated, reused, added := shoe("key", "body"), shoe("key", "another body"), shoe("", "")
	results := insert(t, b, nil, repeated, reused, added)
	if r := results[repeated.Ref()]; r.Err != nil || r.View.RequestID != before.RequestID {
		t.Errorf("a repetition: %+v, want the first request", r)
	}
	if r := results[reused.Ref()]; !errors.Is(r.Err, requests.ErrKeyReused) {
		t.Errorf("the key with another body: %v, want ErrKeyReused", r.Err)
	}
	if r := results[added.Ref()]; r.Err != nil || r.View.RequestID != added.RequestID || r.View.Status != requests.Queued {
		t.Errorf("a new submission: %+v, want it queued", r)
	}
	found, err := requests.LookUp(t.Context(), b.DB, []requests.Submission{repeated, shoe("unknown", "")})
	if err != nil || len(found) != 1 || found[repeated.Ref()].View.RequestID != before.RequestID {
		t.Errorf("found %v, %v, want the first request of the key that was used", found, err)
	}
}

// Withdraw deletes only the row of the refused submission. A request that
// existed under the same id remains.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	why := errors.New("refused")
	submission := func(id uuid.UUID, key string) requests.Submission {
		return requests.Submission{TenantID: b.Tenant, RequestID: id, CartID: "a", VariantID: "shoe", Quantity: 1, IdempotencyKey: key}
	}
	existing := submission(requests.NewID(), "first")
	insert(t, b, nil, existing)
	same, other, kept := submission(existing.RequestID, "second"), submission(requests.NewID(), "second"), submission(requests.NewID(), "")
	results := insert(t, b, map[requests.Ref]error{same.Ref(): why, other.Ref(): why}, same, other, kept)
	for _, s := range []requests.Submission{same, other} {
		if r := results[s.Ref()]; !errors.Is(r.Err, why) {
			t.Errorf("%+v, want the refusal", r)
		}
	}
	if r := results[kept.Ref()]; r.Err != nil || r.View.RequestID != kept.RequestID {
		t.Errorf("%+v, want the request of the other calls", r)
	}
	for _, s := range []requests.Submission{existing, kept} {
		_, err := requests.Get(t.Context(), b.DB, b.Tenant, s.RequestID)
		pgtest.Must(t, err)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}
