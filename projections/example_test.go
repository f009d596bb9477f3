package projections_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/projections"
	"github.com/holdfast/holdfast/reservations"
)

// reservationEvent is a transition of a reservation, as the record has it.
type reservationEvent struct {
	tenant uuid.UUID
	action string
	kind   string
}

// counters are the state and the delta.
type counters struct {
	Held      int64 `json:"held"`
	Committed int64 `json:"committed"`
	Released  int64 `json:"released"`
}

// reservationCounts counts the transitions of each kind of resource.
var reservationCounts = projections.Projection[reservationEvent, counters, counters]{
	Name: "example.counters",
	Key: func(e reservationEvent) projections.Key {
		return projections.Key{TenantID: e.tenant, Key: e.kind}
	},
	Apply: func(c *counters, e reservationEvent) counters {
		switch e.action {
		case "reservation.held":
			c.Held++
		case "reservation.committed":
			c.Committed++
		case "reservation.released", "reservation.expired":
			c.Released++
		}
		return *c
	},
	Coalesce: func(_, later counters) counters { return later },
	Source: &projections.Source[reservationEvent]{Decode: func(r *audit.Record) (reservationEvent, bool) {
		var after struct {
			Kind string `json:"resource_kind"`
		}
		err := json.Unmarshal(r.After, &after)
		return reservationEvent{r.TenantID, r.Action, after.Kind}, err == nil && after.Kind != ""
	}},
}

// printer is a receiver of frames that prints the frames. Without one, a runtime sends
// them to the processes that serve live channels.
type printer struct{}

func (printer) Send(_ context.Context, frames []projections.Frame) error {
	for _, f := range frames {
		fmt.Println(f.Channel, f.Event, f.Version, string(f.Payload))
	}
	return nil
}

// A dashboard's counters are folded from every transition of a reservation.
// RunOnce makes one delivery; a worker calls Run.
func Example() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		must := func(err error) {
			if err != nil {
				log.Fatal(err)
			}
		}
		config := projections.Config{Send: printer{}.Send}
		runtime, err := projections.New(db, reservationCounts, config)
		must(err)
		feed, err := projections.NewFeed(db, config)
		must(err)
		must(runtime.Register(feed))

		tenant := uuid.New()
		shopping(ctx, db, tenant)

		for folded := 0; folded < 5; { // until concurrent writers have ended
			report, err := feed.RunOnce(ctx)
			must(err)
			folded += report.Delivered
		}
		state, err := runtime.ReadRequired(ctx, projections.Key{TenantID: tenant, Key: inventory.Kind})
		must(err)
		fmt.Printf("%+v\n", state)
	})
	// Output:
	// projection.example.counters.inventory.variant delta 4 {"held":2,"committed":1,"released":1}
	// {Held:2 Committed:1 Released:1}
}

// shopping makes two holds, and commits one and releases the other.
func shopping(ctx context.Context, db *pgxpool.Pool, tenant uuid.UUID) {
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	_, err := inventory.Set(ctx, db, tenant, "shoe", inventory.StockPatch{Stock: new(int64(5))}, audit.Origin{})
	must(err)
	terms, err := inventory.Terms{}.WithDefaults()
	must(err)
	must(pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var requests []inventory.HoldRequest
		for _, cart := range []string{"ann", "bob"} {
			requests = append(requests, inventory.HoldRequest{TenantID: tenant, RequestID: uuid.Must(uuid.NewV7()), CartID: cart, VariantID: "shoe", Quantity: 1})
		}
		holding, err := inventory.HoldTx(ctx, tx, requests, terms)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		holding.Queue(b)
		return tx.SendBatch(ctx, b).Close()
	}))
	must(pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := inventory.CheckoutTx(ctx, tx, tenant, "ann", audit.Origin{}); err != nil {
			return err
		}
		_, err := inventory.ReleaseCartTx(ctx, tx, tenant, "bob", "", reservations.CartRemoved, audit.Origin{})
		return err
	}))
}

// ApplyEvent is for events that are not in the record.
func ExampleRuntime_ApplyEvent() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		runtime, err := projections.New(db, reservationCounts, projections.Config{Send: printer{}.Send})
		if err != nil {
			log.Fatal(err)
		}
		if err := runtime.ApplyEvent(ctx, reservationEvent{uuid.New(), "reservation.held", "hall.seat"}); err != nil {
			log.Fatal(err)
		}
	})
	// Output:
	// projection.example.counters.hall.seat delta 1 {"held":1,"committed":0,"released":0}
}

// Rebuild folds a sequence of events from the zero state.
func ExampleRuntime_Rebuild() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		runtime, err := projections.New(db, reservationCounts, projections.Config{Send: printer{}.Send})
		if err != nil {
			log.Fatal(err)
		}
		tenant := uuid.New()
		key := projections.Key{TenantID: tenant, Key: "hall.seat"}
		events := func(yield func(reservationEvent) bool) {
			for _, action := range []string{"reservation.held", "reservation.held", "reservation.released"} {
				if !yield(reservationEvent{tenant, action, "hall.seat"}) {
					return
				}
			}
		}
		state, err := runtime.Rebuild(ctx, key, events, 0)
		fmt.Println(state, err)
	})
	// Output:
	// projection.example.counters.hall.seat rebuild 1 {"held":2,"committed":0,"released":1}
	// {2 0 1} <nil>
}
