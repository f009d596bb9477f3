package requestrows_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// insert inserts a group in a transaction, withdraws the refused requests, and
// returns the results.
func insert(t *testing.T, b *testkit.Fixture, refused map[requestrows.Ref]error, group ...requestrows.Submission) map[requestrows.Ref]requestrows.Result {
	t.Helper()
	insertion := requestrows.Insertion{Group: group}
	if len(refused) > 0 {
		insertion.Decide = func(context.Context, pgx.Tx, []requests.Request) (map[requestrows.Ref]error, error) {
			return refused, nil
		}
	}
	var inserted requestrows.Inserted
	pgtest.Must(t, pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) (err error) {
		inserted, err = insertion.InsertTx(t.Context(), tx)
		return err
	}))
	return inserted.Results
}

func TestInsertionResults(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	shoe := func(key, body string) requestrows.Submission {
		s := requestrows.Submission{TenantID: b.Tenant, RequestID: requestrows.NewID(), CartID: "a", VariantID: "shoe", Quantity: 1, IdempotencyKey: key}
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
	if r := results[reused.Ref()]; !errors.Is(r.Err, requestrows.ErrKeyReused) {
		t.Errorf("the key with another body: %v, want ErrKeyReused", r.Err)
	}
	if r := results[added.Ref()]; r.Err != nil || r.View.RequestID != added.RequestID || r.View.Status != requests.Queued {
		t.Errorf("a new submission: %+v, want it queued", r)
	}
	found, err := requestrows.LookUp(t.Context(), b.DB, []requestrows.Submission{repeated, shoe("unknown", "")})
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
	submission := func(id uuid.UUID, key string) requestrows.Submission {
		return requestrows.Submission{TenantID: b.Tenant, RequestID: id, CartID: "a", VariantID: "shoe", Quantity: 1, IdempotencyKey: key}
	}
	existing := submission(requestrows.NewID(), "first")
	insert(t, b, nil, existing)
	same, other, kept := submission(existing.RequestID, "second"), submission(requestrows.NewID(), "second"), submission(requestrows.NewID(), "")
	results := insert(t, b, map[requestrows.Ref]error{same.Ref(): why, other.Ref(): why}, same, other, kept)
	for _, s := range []requestrows.Submission{same, other} {
		if r := results[s.Ref()]; !errors.Is(r.Err, why) {
			t.Errorf("%+v, want the refusal", r)
		}
	}
	if r := results[kept.Ref()]; r.Err != nil || r.View.RequestID != kept.RequestID {
		t.Errorf("%+v, want the request of the other calls", r)
	}
	for _, s := range []requestrows.Submission{existing, kept} {
		_, err := requestrows.Get(t.Context(), b.DB, b.Tenant, s.RequestID)
		pgtest.Must(t, err)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}
