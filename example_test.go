package holdfast_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// All of Holdfast in one program, as in the package's documentation. sell works
// on any database that Migrate has migrated; pgtest.Example has one.
func Example() {
	pgtest.Example(func(ctx context.Context, pool *pgxpool.Pool) {
		committed, err := sell(ctx, pool)
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(len(committed), committed[0].HolderID, committed[0].Quantity, committed[0].Status)
	})
	// Output: 1 ann's 2 committed
}

func sell(ctx context.Context, pool *pgxpool.Pool) ([]holdfast.Reservation, error) {
	client, err := holdfast.New(pool, nil)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = client.Stop(ctx) }()
	shop, err := client.Tenant(ctx, "shop")
	if err != nil {
		return nil, err
	}
	if _, err := shop.SetStock(ctx, "shirt", holdfast.StockPatch{Stock: new(int64(3))}, nil); err != nil {
		return nil, err
	}
	added, err := shop.Add(ctx, "ann's", "shirt", 2, nil)
	if err != nil {
		return nil, err
	}
	if _, err := shop.Wait(ctx, added.RequestID, 10*time.Second); err != nil {
		return nil, err
	}
	return shop.Checkout(ctx, "ann's", nil)
}
