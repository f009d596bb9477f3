package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// holdTwo makes a variant with five units and a hold of two of them, as a drain
// does.
func holdTwo(ctx context.Context, db *pgxpool.Pool, tenant uuid.UUID) (id uuid.UUID) {
	if _, err := inventory.Set(ctx, db, tenant, "shoe", inventory.StockPatch{Stock: new(int64(5))}, audit.Origin{}); err != nil {
		log.Fatal(err)
	}
	request := inventory.HoldRequest{TenantID: tenant, RequestID: uuid.Must(uuid.NewV7()), CartID: "cart", VariantID: "shoe", Quantity: 2}
	terms, err := inventory.Terms{}.WithDefaults()
	if err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		holding, err := inventory.HoldTx(ctx, tx, []inventory.HoldRequest{request}, terms)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		holding.Queue(b)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		log.Fatal(err)
	}
	return request.RequestID
}

func show(ctx context.Context, db *pgxpool.Pool, tenant uuid.UUID) {
	s, err := inventory.Get(ctx, db, tenant, "shoe")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("stock %d, reserved %d, available %d\n", s.Stock, s.Reserved, s.Available)
}

func ExampleCommit() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		tenant := uuid.New()
		id := holdTwo(ctx, db, tenant)
		show(ctx, db, tenant)
		r, err := inventory.Commit(ctx, db, tenant, id, audit.Origin{Actor: audit.User("till")})
		fmt.Println(r.Status, err)
		show(ctx, db, tenant)

		_, err = inventory.Commit(ctx, db, tenant, id, audit.Origin{})
		conflict, ok := errors.AsType[*reservations.ConflictError](err)
		fmt.Println(ok, conflict.Actual)
	})
	// Output:
	// stock 5, reserved 2, available 3
	// committed <nil>
	// stock 3, reserved 0, available 3
	// true committed
}

func ExampleRelease() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		tenant := uuid.New()
		id := holdTwo(ctx, db, tenant)
		r, err := inventory.Release(ctx, db, tenant, id, reservations.PaymentFailed, audit.Origin{Actor: audit.User("till")})
		fmt.Println(r.Status, r.ReleaseReason, err)
		show(ctx, db, tenant)
	})
	// Output:
	// released payment_failed <nil>
	// stock 5, reserved 0, available 5
}

func ExampleExtend() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		tenant := uuid.New()
		id := holdTwo(ctx, db, tenant)
		const lifetimeMax = time.Hour
		for _, by := range []time.Duration{30 * time.Minute, 30 * time.Minute} {
			r, err := inventory.Extend(ctx, db, tenant, id, by, lifetimeMax, audit.Origin{})
			if errors.Is(err, reservations.ErrLifetimeExceeded) {
				fmt.Println("no longer than", lifetimeMax, "in all")
				continue
			}
			fmt.Println(r.ExpiresAt.Sub(r.FirstHeldAt))
		}
	})
	// Output:
	// 45m0s
	// no longer than 1h0m0s in all
}

func ExampleCheckoutTx() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		tenant := uuid.New()
		holdTwo(ctx, db, tenant)
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			// … write the order, in the same transaction …
			committed, err := inventory.CheckoutTx(ctx, tx, tenant, "cart", audit.Origin{Actor: audit.User("till")})
			for _, r := range committed {
				fmt.Println(r.Quantity, r.ResourceKey, r.Status)
			}
			return err
		})
		fmt.Println(err)
		show(ctx, db, tenant)
	})
	// Output:
	// 2 shoe committed
	// <nil>
	// stock 3, reserved 0, available 3
}
