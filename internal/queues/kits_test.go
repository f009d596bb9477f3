package queues_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// kit is a line of kits, with the parts as they are accepted.
func kit(id string, quantity int32, parts ...requests.KitPart) requests.Line {
	return requests.Line{KitID: id, Quantity: quantity, Parts: parts}
}

func part(variant string, quantity int32) requests.KitPart {
	return requests.KitPart{VariantID: variant, Quantity: quantity}
}

func TestKits(t *testing.T) {
	t.Parallel()
	camp := func(n int32) requests.Line { return kit("camp", n, part("tent", 1), part("peg", 4), part("map", 1)) }
	for _, test := range []struct {
		name    string
		partial bool
		lines   []requests.Line
		status  requests.Status
		reason  requests.Reason
		want    []string
		hot     []string // where tents are hot, if that differs
	}{
		{"all", false, []requests.Line{camp(2)}, requests.Done, "", []string{"2/"}, nil},
		{"short of a part", false, []requests.Line{camp(3)}, requests.Failed, requests.OutOfStock, []string{"0/out_of_stock"}, nil},
		{"unknown kit", false, []requests.Line{of("tent", 1), kit("gone", 1)}, requests.Failed, requests.UnknownKit, []string{"0/", "0/unknown_kit"}, nil},
		{"unknown part", false, []requests.Line{kit("odd", 1, part("tent", 1), part("gone", 1))}, requests.Failed, requests.UnknownVariant, []string{"0/unknown_variant"}, nil},
		{"two kits share a part", false, []requests.Line{camp(1), kit("pegs", 1, part("peg", 8))}, requests.Failed, requests.OutOfStock, []string{"0/", "0/out_of_stock"}, nil},
		{"a line shares a part", false, []requests.Line{of("peg", 6), camp(1)}, requests.Failed, requests.OutOfStock, []string{"0/", "0/out_of_stock"}, nil},
		{"a digital kit", false, []requests.Line{kit("maps", 2, part("map", 3))}, requests.Done, "", []string{"0/"}, nil},
		{"as many as there are", true, []requests.Line{camp(5), of("peg", 1)}, requests.Done, "", []string{"2/out_of_stock", "1/"}, []string{"0/out_of_stock", "1/"}},
		{"none is whole", true, []requests.Line{of("tent", 1), kit("big", 1, part("tent", 1), part("peg", 10))}, requests.Done, "", []string{"1/", "0/out_of_stock"}, nil},
	} {
		for _, hot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hot %t", test.name, hot), func(t *testing.T) {
				t.Parallel()
				f := newSeveral(t)
				f.Stock("tent", 5)
				f.Stock("peg", 9)
				f.Must(failure(inventory.Set(t.Context(), f.DB, f.Tenant, "map", inventory.StockPatch{Tracked: new(false)}, audit.Origin{})))
				want := test.want
				if hot {
					f.Pin("tent")
					if test.hot != nil {
						want = test.hot
					}
				}
				v := f.decide(f.add("cart", test.partial, test.lines...))
				if v.Status != test.status || v.Reason != test.reason {
					t.Errorf("%s %q, want %s %q", v.Status, v.Reason, test.status, test.reason)
				}
				if got := linesOf(v); !slices.Equal(got, want) {
					t.Errorf("lines %q, want %q", got, want)
				}
				if n := f.Int(`SELECT count(*) FROM reservations AS r JOIN reservation_requests AS q ON q.request_id = r.reservation_id
					WHERE r.kit_id IS DISTINCT FROM q.kit_id`); n != 0 {
					t.Errorf("%d holds name another kit than their requests", n)
				}
			})
		}
	}
}

func failure[T any](_ T, err error) error { return err }

// overtookSQL counts the parts for a hot variant that were granted in one batch with
// an earlier one that was rejected. In a later batch a part may be granted after a
// rejection, because the hold of a request that another variant has rejected was
// released in between. The order of the batches is not checked: different
// transactions insert the parts, and the rows do not record when these committed.
const overtookSQL = `
SELECT count(*)
FROM reservation_requests later
WHERE later.variant_id = $1 AND later.attempts = 0 AND later.status = 'done' AND EXISTS (
    SELECT
    FROM reservation_requests earlier
    WHERE earlier.variant_id = $1 AND earlier.attempts = 0 AND earlier.status = 'failed'
      AND earlier.sequence < later.sequence AND earlier.updated_at = later.updated_at)`

// 64 callers take kits over five variants in shuffled order, two of which are
// hot. There is no deadlock, and units are held in whole kits only.
func TestKitsConcurrently(t *testing.T) {
	t.Parallel()
	f := newSeveral(t)
	const stock, callers = 40, 64
	variants := []string{"a", "b", "c", "d", "e"}
	for i, variant := range variants {
		f.Stock(variant, stock)
		if i < 2 {
			f.Pin(variant)
		}
	}
	stop := f.Run(append(f.lanes, f.Lane(queues.LaneConfig{}), f.HotLane(queues.LaneConfig{}))...)
	order := rand.New(rand.NewPCG(16502, 27))
	var all []requests.Request
	for i := range callers {
		var parts []requests.KitPart
		for _, j := range order.Perm(len(variants)) {
			parts = append(parts, part(variants[j], 1))
		}
		all = append(all, f.add(fmt.Sprint("cart-", i), false, kit("first", 1, parts[:2]...), kit("second", 1, parts[2:]...)))
	}
	f.Until("all are decided", func() bool {
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
	})
	stop()
	f.CheckInvariants()
	for _, variant := range variants[:2] {
		if n := f.Int(overtookSQL, variant); n != 0 {
			t.Errorf("%d requests for %s were granted before an earlier one of their batch", n, variant)
		}
	}
	done := 0
	for _, r := range all {
		if f.Get(r).Status == requests.Done {
			done++
		}
	}
	if n := f.Int(`SELECT count(*) FROM inventory_stocks WHERE reserved <> $1`, done); n != 0 || done == 0 || done > stock {
		t.Errorf("%d requests are done, and %d stocks have another number reserved", done, n)
	}
	if n := f.Int(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// A request has the parts of its kit as they were when it was accepted.
func TestKitsAreExpandedOnce(t *testing.T) {
	t.Parallel()
	f := newSeveral(t)
	f.Stock("tent", 5)
	f.Stock("peg", 9)
	set := func(parts ...requests.KitPart) {
		f.Must(pgx.BeginFunc(t.Context(), f.DB, func(tx pgx.Tx) error {
			return failure(inventory.SetKitTx(context.Background(), tx, f.Tenant, "camp", parts, audit.Origin{}))
		}))
	}
	lines := func() requests.Line {
		expanded, err := requestrows.ExpandKits(t.Context(), f.DB, f.Tenant, &requests.Lines{Items: []requests.Line{kit("camp", 2)}})
		f.Must(err)
		return expanded.Items[0]
	}
	set(part("tent", 1))
	first := f.add("first", false, lines())
	set(part("peg", 3))
	f.decide(first)
	f.decide(f.add("second", false, lines()))
	if n := f.Int(`SELECT count(*) FROM inventory_stocks WHERE (variant_id, reserved) IN (('tent', 2), ('peg', 6))`); n != 2 {
		t.Errorf("%d of 2 stocks have the units of the first and of the second request", n)
	}
}
