package requestrows_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
)

// A group may have two retries of one request. One is inserted, and the other
// receives its id. A repetition of the call that made it receives the retry.
func TestTwoRetriesInOneGroup(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 1)
	r := b.Submit("a", "shoe", 2)
	if _, err := requestrows.Retry(t.Context(), b.DB, b.Tenant, r.RequestID); !errors.As(err, new(*requestrows.NotFailedError)) {
		t.Errorf("%v, want NotFailedError", err)
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	for _, who := range [][2]uuid.UUID{{uuid.New(), r.RequestID}, {b.Tenant, uuid.New()}} {
		if _, err := requestrows.Retry(t.Context(), b.DB, who[0], who[1]); !errors.Is(err, requestrows.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
	}
	first, err := requestrows.Retry(t.Context(), b.DB, b.Tenant, r.RequestID)
	pgtest.Must(t, err)
	second := first
	first.RequestID, second.RequestID = requestrows.NewID(), requestrows.NewID()
	first.IdempotencyKey = "k"
	insert := func(group ...requestrows.Submission) map[requestrows.Ref]requestrows.Result {
		insertion := requestrows.Insertion{Group: group, AssumeNew: true} // which is ignored, because the group has a retry
		var inserted requestrows.Inserted
		pgtest.Must(t, pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) (err error) {
			inserted, err = insertion.InsertTx(t.Context(), tx)
			return err
		}))
		return inserted.Results
	}
	results := insert(first, second)
	made, refused := second, first
	if results[first.Ref()].Err == nil {
		made, refused = first, second
	}
	got, conflict := results[made.Ref()], (*requestrows.RetriedError)(nil)
	if got.Err != nil || got.View.RetryOf == nil || *got.View.RetryOf != r.RequestID {
		t.Errorf("the retry is %+v", got)
	}
	if !errors.As(results[refused.Ref()].Err, &conflict) || conflict.RetriedBy != made.RequestID {
		t.Errorf("the second retry is %+v, want refused because of %s", results[refused.Ref()], made.RequestID)
	}
	if results := insert(made); results[made.Ref()].Err != nil {
		t.Errorf("a repetition is %+v", results)
	}
	other := requestrows.Submission{TenantID: b.Tenant, RequestID: requestrows.NewID(), CartID: "b", VariantID: "shoe", Quantity: 1}
	third := second
	third.RequestID = requestrows.NewID()
	if results := insert(third, other); !errors.As(results[third.Ref()].Err, &conflict) || results[other.Ref()].Err != nil {
		t.Errorf("a third retry and another member of its group are %+v", results)
	}
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.retried' AND target_id = $1 AND after ->> 'retried_by' = $2::text`, r.RequestID, made.RequestID.String()); n != 1 {
		t.Errorf("the retry is recorded %d times", n)
	}
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.retried'`); n != 1 {
		t.Errorf("%d retries are recorded, want 1", n)
	}
	retries, err := requestrows.Retries(t.Context(), b.DB, []requestrows.Ref{requestrows.RefOf(&r), made.Ref(), {TenantID: uuid.New(), RequestID: r.RequestID}})
	pgtest.Must(t, err)
	if len(retries) != 1 || retries[requestrows.RefOf(&r)] != made.RequestID {
		t.Errorf("the retries are %v", retries)
	}
}
