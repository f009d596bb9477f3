package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/ratelimit"
)

// A batch sends the caller's writes and the writes of its items in one round
// trip. What a refused item took is returned, and no other item is charged for
// it.
func ExampleBatch() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		if err := migrations.Up(ctx, db, &migrations.Config{Metered: true}); err != nil {
			log.Fatal(err)
		}
		if err := limitBatch(ctx, db); err != nil {
			log.Fatal(err)
		}
	})
	// Output:
	// 2 1 bob is blocked
	// 1 0 <nil>
	// 1 0 ratelimit: rate of customer:ann exceeded: 1 asked for, 0 of 1 left
	// 0 0 <nil>
	// 0 1 ratelimit: rate of shop exceeded: 1 asked for, 0 of 2 left
}

// limitBatch can be copied. It needs a pool of a database with the tables of
// migrations.Up, also of those with Config.Metered.
func limitBatch(ctx context.Context, db *pgxpool.Pool) error {
	shop := uuid.MustParse("01900000-0000-7000-8000-000000000002")
	customers := []string{"bob", "ann", "ann", "cem", "dee"}
	var items []ratelimit.Item
	for _, customer := range customers {
		item, err := ratelimit.NewItem(shop, []ratelimit.Rate{
			{Scope: "shop", Amount: 1, Limit: 2, Window: 24 * time.Hour},
			{Scope: "customer:" + customer, Amount: 1, Limit: 1, Window: 24 * time.Hour},
		})
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		limiter, err := ratelimit.NewBatch(items)
		if err != nil {
			return err
		}
		statements := &pgx.Batch{} // together with the caller's writes
		limiter.Queue(statements)
		if err := tx.SendBatch(ctx, statements).Close(); err != nil {
			return err
		}
		results, err := limiter.DecideTx(ctx, tx, &ratelimit.DecideOpts{
			Refuse: func(i int, _ bool) error {
				if customers[i] == "bob" {
					return errors.New("bob is blocked")
				}
				return nil
			},
		})
		for _, r := range results {
			fmt.Println(r.States[0].Remaining, r.States[1].Remaining, r.Err)
		}
		return err
	})
}
