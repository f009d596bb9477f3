package requests_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/requests"
)

// A group may have two retries of one request. One is inserted, and the other
// receives its id. A repetition of the call that made it receives the retry.
func TestTwoRetriesInOneGroup(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 1)
	r := b.Submit("a", "shoe", 2)
	if _, err := requests.Retry(t.Context(), b.DB, b.Tenant, r.RequestID); !errors.As(err, new(*requests.NotFailedError)) {
		t.Errorf("%v, want NotFailedError", err)
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	for _, who := range [][2]uuid.UUID{{uuid.New(), r.RequestID}, {b.Tenant, uuid.New()}} {
		if _, err := requests.Retry(t.Context(), b.DB, who[0], who[1]); !errors.Is(err, requests.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
	}
	first, err := requests.Retry(t.Context(), b.DB, b.Tenant, r.RequestID)
	pgtest.Must(t, err)
	second := first
	first.RequestID, second.RequestID = requests.NewID(), requests.NewID()
	first.IdempotencyKey = "k"
	insert := func(group ...requests.Submission) map[requests.Ref]requests.Result {
		insertion := requests.Insertion{Group: group, AssumeNew: true} // which is ignored, because the group has a retry
		var inserted requests.Inserted
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
	got, conflict := results[made.Ref()], (*requests.RetriedError)(nil)
	if got.Err != nil || got.View.RetryOf == nil || *got.View.RetryOf != r.RequestID {
		t.Errorf("the retry is %+v", got)
	}
	if !errors.As(results[refused.Ref()].Err, &conflict) || conflict.RetriedBy != made.RequestID {
		t.Errorf("the second retry is %+v, want refused because of %s", results[refused.Ref()], made.RequestID)
	}
	if results := insert(made); results[made.Ref()].Err != nil {
		t.Errorf("a repetition is %+v", results)
	}
	other := requests.Submission{TenantID: b.Tenant, RequestID: requests.NewID(), CartID: "b", VariantID: "shoe", Quantity: 1}
	third := second
	third.RequestID = requests.NewID()
	if results := insert(third, other); !errors.As(results[third.Ref()].Err, &conflict) || results[other.Ref()].Err != nil {
		t.Errorf("a third retry and another member of its group are %+v", results)
	}
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.retried' AND target_id = $1 AND after ->> 'retried_by' = $2::text`, r.RequestID, made.RequestID.String()); n != 1 {
		t.Errorf("the retry is recorded %d times", n)
	}
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.retried'`); n != 1 {
		t.Errorf("%d retries are recorded, want 1", n)
	}
	retries, err := requests.Retries(t.Context(), b.DB, []requests.Ref{r.Ref(), made.Ref(), {TenantID: uuid.New(), RequestID: r.RequestID}})
	pgtest.Must(t, err)
	if len(retries) != 1 || retries[r.Ref()] != made.RequestID {
		t.Errorf("the retries are %v", retries)
	}
}
