package audit_test

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/reservations"
)

var update = flag.Bool("update", false, "write the golden files again")

// An audit record is the event that subscribers receive. There is one golden
// file per action, with the record as a subscriber receives it. Values that
// differ between runs are replaced by numbers. A target's history has the same
// records.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	written := writeEveryAction(t, b)
	delivered := follow(t, b)
	kinds := b.Int(`SELECT count(DISTINCT action) FROM audit_log`)
	if int(kinds) != len(written) {
		t.Errorf("%d kinds of action were recorded, %d have a golden file here", kinds, len(written))
	}
	for action, target := range written {
		t.Run(action, func(t *testing.T) {
			records, err := audit.History(t.Context(), b.DB, b.Tenant, target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(records, delivered[target]); diff != "" {
				t.Errorf("history and tail (-history +tail):\n%s", diff)
			}
			i := slices.IndexFunc(records, func(r audit.Record) bool { return r.Action == action })
			if i < 0 {
				t.Fatalf("no such row among %d", len(records))
			}
			pgtest.Golden(t, action, records[i], *update)
		})
	}
}

// writeEveryAction makes one transition of each recorded action, and returns the
// target of each action.
func writeEveryAction(t *testing.T, b *testkit.Fixture) map[string]uuid.UUID {
	t.Helper()
	ctx, written := t.Context(), make(map[string]uuid.UUID)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	clerk := audit.Origin{Actor: audit.User("hf_clerk0"), CorrelationID: "c-stock", Reason: "counted"}
	shopper := audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-cart"}
	_, err := inventory.Set(ctx, b.DB, b.Tenant, "rolls/buns", inventory.StockPatch{Stock: new(int64(10)), MaxPerCart: new(int32(5))}, clerk)
	must(err)
	_, err = inventory.Adjust(ctx, b.DB, b.Tenant, "rolls/buns", -1, clerk)
	must(err)
	stock := audit.TargetOf(b.Tenant, "stock", "rolls/buns")
	written["stock.set"], written["stock.adjusted"] = stock, stock

	lane := b.Lane(queues.LaneConfig{})
	ask := func(cart string, quantity int32) uuid.UUID {
		r := b.SubmitAs(requestrows.Submission{CartID: cart, VariantID: "rolls/buns", Quantity: quantity, ActorID: "hf_shop00", CorrelationID: "c-" + cart})
		b.Tick(lane)
		return r.RequestID
	}
	committed, released, expired := ask(`the "first" <cart>`, 2), ask("b", 1), ask("c", 1)
	written["reservation.held"], written["reservation.extended"], written["reservation.committed"] = committed, committed, committed
	_, err = inventory.Extend(ctx, b.DB, b.Tenant, committed, 5*time.Minute, 2*time.Hour, shopper)
	must(err)
	_, err = inventory.Commit(ctx, b.DB, b.Tenant, committed, shopper)
	must(err)
	written["reservation.released"] = released
	_, err = inventory.Release(ctx, b.DB, b.Tenant, released, reservations.PaymentFailed, shopper)
	must(err)
	written["reservation.expired"] = expired
	b.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE reservation_id = $1`, expired)
	_, err = inventory.ExpireDue(ctx, b.DB, 10)
	must(err)
	failed := ask("d", 6)
	written["request.failed"], written["request.retried"] = failed, failed
	retry, err := requestrows.Retry(ctx, b.DB, b.Tenant, failed)
	must(err)
	retry.RequestID = uuid.MustParse("0192f0c1-0000-7000-8000-000000000001")
	retry.ActorID, retry.CorrelationID = "hf_clerk0", "c-retry"
	b.SubmitAs(retry)
	return written
}

// follow returns the records that a subscriber receives, by target.
func follow(t *testing.T, b *testkit.Fixture) map[uuid.UUID][]audit.Record {
	t.Helper()
	sub := subscribe(t, b.DB, "events", audit.SubscriptionConfig{FromBeginning: true, Batch: 3})
	delivered, seen, want := make(map[uuid.UUID][]audit.Record), int64(0), b.Int(`SELECT count(*) FROM audit_log`)
	pgtest.Until(t, "every event is delivered", func() bool {
		if _, err := sub.RunOnce(t.Context(), func(_ context.Context, d *audit.Delivery) error {
			for _, r := range d.Records {
				delivered[r.TargetID] = append(delivered[r.TargetID], r)
				seen++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return seen == want
	})
	return delivered
}
