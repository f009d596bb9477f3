package carts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/reservations"
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

// submit adds to a cart and returns the request's id.
func (s *store) submit(ctx context.Context, cart string, quantity int32) (id uuid.UUID) {
	check(pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		r, err := admission.SubmitTx(ctx, tx, s.inserter, requestrows.Submission{TenantID: s.tenant, CartID: cart, VariantID: "shoe", Quantity: quantity})
		id = r.RequestID
		return err
	}))
	return id
}

// decide runs one tick of the lane, as a worker does every second.
func (s *store) decide(ctx context.Context) {
	_, err := s.lane.Tick(ctx)
	check(err)
}

func ExampleCheckout() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		s := openStore(ctx, db)
		s.submit(ctx, "ann's", 2)
		_, err := carts.Checkout(ctx, db, s.tenant, "ann's", audit.Origin{Actor: audit.User("till")})
		fmt.Println("undecided:", errors.Is(err, requestrows.ErrRequestsPending))
		s.decide(ctx)
		committed, err := carts.Checkout(ctx, db, s.tenant, "ann's", audit.Origin{Actor: audit.User("till")})
		fmt.Println(committed[0].Quantity, committed[0].ResourceKey, committed[0].Status, err)
		_, err = carts.Checkout(ctx, db, s.tenant, "ann's", audit.Origin{})
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
		removed, err := carts.Remove(ctx, db, s.tenant, "ann's", "shoe", reservations.CartRemoved, audit.Origin{Actor: audit.User("ann")})
		fmt.Println("released", len(removed.Released), "cancelled", len(removed.Cancelled), err)
		v, err := requestrows.Get(ctx, db, s.tenant, queued)
		fmt.Println(v.Status, v.Reason, err)
	})
	// Output:
	// released 1 cancelled 1 <nil>
	// failed cancelled <nil>
}
