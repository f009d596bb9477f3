package requests_test

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
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// store is what the examples work with: one variant of three, and a lane that decides.
type store struct {
	db     *pgxpool.Pool
	tenant uuid.UUID
	bell   *queues.Bell
	lane   *queues.Lane
}

func openStore(ctx context.Context, db *pgxpool.Pool) *store {
	s := &store{db: db, tenant: uuid.New()}
	_, err := inventory.Set(ctx, db, s.tenant, "shoe", inventory.StockPatch{Stock: new(int64(3))}, audit.Origin{})
	check(err)
	s.bell, err = queues.NewBell(db)
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

// submit adds to a cart and returns the request's id.
func (s *store) submit(ctx context.Context, cart string, quantity int32) (id uuid.UUID) {
	check(pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		r, err := requests.SubmitTx(ctx, tx, s.bell, requests.Submission{TenantID: s.tenant, CartID: cart, VariantID: "shoe", Quantity: quantity})
		id = r.RequestID
		return err
	}))
	return id
}

// decide does once what a worker does all the time.
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
				asked[i], err = requests.SubmitTx(ctx, tx, s.bell, requests.Submission{
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
			v, err := requests.Get(ctx, db, s.tenant, asked[i].RequestID)
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

func ExampleCheckout() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		s := openStore(ctx, db)
		s.submit(ctx, "ann's", 2)
		_, err := requests.Checkout(ctx, db, s.tenant, "ann's", audit.Origin{Actor: audit.User("till")})
		fmt.Println("undecided:", errors.Is(err, requests.ErrRequestsPending))
		s.decide(ctx)
		committed, err := requests.Checkout(ctx, db, s.tenant, "ann's", audit.Origin{Actor: audit.User("till")})
		fmt.Println(committed[0].Quantity, committed[0].ResourceKey, committed[0].Status, err)
		_, err = requests.Checkout(ctx, db, s.tenant, "ann's", audit.Origin{})
		fmt.Println("again:", errors.Is(err, inventory.ErrCartEmpty))
	})
	// Output:
	// undecided: true
	// 2 shoe committed <nil>
	// again: true
}

func ExampleRemove() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		s := openStore(ctx, db)
		s.submit(ctx, "ann's", 2)
		s.decide(ctx)
		queued := s.submit(ctx, "ann's", 1)
		removed, err := requests.Remove(ctx, db, s.tenant, "ann's", "shoe", reservations.CartRemoved, audit.Origin{Actor: audit.User("ann")})
		fmt.Println("released", len(removed.Released), "cancelled", len(removed.Cancelled), err)
		v, err := requests.Get(ctx, db, s.tenant, queued)
		fmt.Println(v.Status, v.Reason, err)
	})
	// Output:
	// released 1 cancelled 1 <nil>
	// failed cancelled <nil>
}

func ExampleIntake_Submit() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		s := openStore(ctx, db)
		in, err := requests.NewIntake(db, s.bell, requests.IntakeConfig{})
		check(err)
		running, stop := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- in.Run(running) }()

		once := requests.Submission{TenantID: s.tenant, CartID: "ann's", VariantID: "shoe", Quantity: 1, IdempotencyKey: "key"}
		first, err := in.Submit(ctx, once)
		check(err)
		again, err := in.Submit(ctx, once) // sent twice, done once
		check(err)
		fmt.Println(first.Status, again.RequestID == first.RequestID)

		other := once
		other.Fingerprint[0]++ // another body
		_, err = in.Submit(ctx, other)
		fmt.Println(errors.Is(err, requests.ErrKeyReused))
		stop()
		check(<-ended)
	})
	// Output:
	// queued true
	// true
}
