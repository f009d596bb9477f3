package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The record is the event: one golden file an action, as a subscriber is given it, in which what differs from run to run
// has a number in its place. A target's history tells the same.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Normal, normal.NewLane)
	written := trade(t, b)
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
			golden(t, action, records[i])
		})
	}
}

// trade does everything that is recorded, and says on which target each action can be found.
func trade(t *testing.T, b *lanetest.Bench) map[string]uuid.UUID {
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
		r := b.SubmitAs(requests.Submission{CartID: cart, VariantID: "rolls/buns", Quantity: quantity, ActorID: "hf_shop00", CorrelationID: "c-" + cart})
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
	written["request.failed"] = ask("d", 6)
	return written
}

// follow is what a subscriber is given of each target.
func follow(t *testing.T, b *lanetest.Bench) map[uuid.UUID][]audit.Record {
	t.Helper()
	sub := subscribe(t, b.DB, "events", audit.SubscriptionConfig{From: audit.FromBeginning, Batch: 3})
	delivered, seen, want := make(map[uuid.UUID][]audit.Record), int64(0), b.Int(`SELECT count(*) FROM audit_log`)
	until(t, "every event is delivered", func() bool {
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

func golden(t *testing.T, name string, r audit.Record) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden.json")
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	got := numbered(b.String())
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-golden +got):\n%s", file, diff)
	}
}

var (
	timeForm  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	auditForm = regexp.MustCompile(`"audit_id": \d+`)
)

// numbered puts "time 1", "time 2" … in the place of the times, and one number in that of the row's.
func numbered(text string) string {
	var seen []string
	text = timeForm.ReplaceAllStringFunc(text, func(found string) string {
		if !slices.Contains(seen, found) {
			seen = append(seen, found)
		}
		return "time " + strconv.Itoa(slices.Index(seen, found)+1)
	})
	return auditForm.ReplaceAllString(text, `"audit_id": 1`)
}
