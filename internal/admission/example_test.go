package admission_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// store is the fixture of the examples: one variant with three units, and a
// lane that decides.
type store struct {
	db       *pgxpool.Pool
	tenant   uuid.UUID
	inserter *queues.WakeInserter
	lane     *queues.Lane
}

func openStore(ctx context.Context, db *pgxpool.Pool) *store {
	s := &store{db: db, tenant: uuid.New()}
	_, err := inventory.Set(ctx, db, s.tenant, "shoe", inventory.StockPatch{Stock: new(int64(3))}, audit.Origin{})
	check(err)
	s.inserter, err = queues.NewWakeInserter(db)
	check(err)
	s.lane, err = normal.NewLane(db, slog.Default(), queues.LaneConfig{})
	check(err)
	return s
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// decide runs one tick of the lane, as a worker does every second.
func (s *store) decide(ctx context.Context) {
	_, err := s.lane.Tick(ctx)
	check(err)
}

func ExampleSubmitTx() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		s := openStore(ctx, db)
		var asked [2]requests.Request
		check(pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) { // both are queued, or neither
			for i, cart := range []string{"ann's", "bob's"} {
				asked[i], err = admission.SubmitTx(ctx, tx, s.inserter, requestrows.Submission{
					TenantID: s.tenant, CartID: cart, VariantID: "shoe", Quantity: 2, IdempotencyKey: "from " + cart + " phone",
				})
				if err != nil {
					return err
				}
				fmt.Println(cart, asked[i].Status)
			}
			return nil
		}))
		s.decide(ctx)
		for i := range asked {
			v, err := requestrows.Get(ctx, db, s.tenant, asked[i].RequestID)
			check(err)
			fmt.Printf("%s %s %q\n", v.CartID, v.Status, v.Reason)
		}
	})
	// Output:
	// ann's queued
	// bob's queued
	// ann's done ""
	// bob's failed "out_of_stock"
}

func ExampleIntake_Submit() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		s := openStore(ctx, db)
		in, err := admission.NewIntake(db, s.inserter, admission.IntakeConfig{})
		check(err)
		running, stop := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- in.Run(running) }()

		once := requestrows.Submission{TenantID: s.tenant, CartID: "ann's", VariantID: "shoe", Quantity: 1, IdempotencyKey: "key"}
		first, err := in.Submit(ctx, once)
		check(err)
		again, err := in.Submit(ctx, once) // sent twice, done once
		check(err)
		fmt.Println(first.Status, again.RequestID == first.RequestID)

		other := once
		other.Fingerprint[0]++ // another body
		_, err = in.Submit(ctx, other)
		fmt.Println(errors.Is(err, requestrows.ErrKeyReused))
		stop()
		check(<-ended)
	})
	// Output:
	// queued true
	// true
}
