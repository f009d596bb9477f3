package ratelimit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/ratelimit"
)

// A batch sends the caller's writes and the writes of its items in one round
// trip. What a refused item took is returned, and no other item is charged for
// it.
func ExampleBatch() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		if err := migrations.UpMetered(ctx, db); err != nil {
			log.Fatal(err)
		}
		if err := limitBatch(ctx, db); err != nil {
			log.Fatal(err)
		}
	})
	// Output:
	// 2 1 metered: the token is not valid: minted for another subject
	// 1 0 <nil>
	// 1 0 metered: the token is not valid: used
	// 0 0 <nil>
	// 0 1 ratelimit: rate of shop exceeded: 1 asked for, 0 of 2 left
}

// limitBatch can be copied. It needs a pool of a database with the tables of
// migrations.Up and migrations.UpMetered.
func limitBatch(ctx context.Context, db *pgxpool.Pool) error {
	shop := uuid.MustParse("01900000-0000-7000-8000-000000000002")
	minted, err := metered.NewTokenStore(db).Mint(ctx, shop, metered.Grant{Purpose: "sale", Subject: "ann", TTL: time.Hour})
	if err != nil {
		return err
	}
	var items []ratelimit.Item
	var tokens []metered.Presented
	for _, v := range []struct {
		customer string
		token    metered.Token
	}{
		{"bob", minted.Token}, // the token is ann's
		{"ann", minted.Token},
		{"ann", minted.Token},    // again
		{"cem", metered.Token{}}, // needs no token
		{"dee", metered.Token{}}, // nothing is left
	} {
		item, err := ratelimit.NewItem(shop, []ratelimit.Rate{
			{Scope: "shop", Amount: 1, Limit: 2, Window: 24 * time.Hour},
			{Scope: "customer:" + v.customer, Amount: 1, Limit: 1, Window: 24 * time.Hour},
		})
		if err != nil {
			return err
		}
		token, err := metered.Present(shop, &metered.Redemption{Purpose: "sale", Subject: v.customer, Token: v.token})
		if err != nil {
			return err
		}
		items, tokens = append(items, item), append(tokens, token)
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		limiter, err := ratelimit.NewBatch(items)
		if err != nil {
			return err
		}
		redemptions := metered.NewRedemptions(tokens)
		statements := &pgx.Batch{} // together with the caller's writes
		redemptions.Queue(statements)
		limiter.Queue(statements)
		if err := tx.SendBatch(ctx, statements).Close(); err != nil {
			return err
		}
		results, err := limiter.DecideTx(ctx, tx, func(i int) ratelimit.Mode {
			if i < 3 {
				return ratelimit.CountAndRedeem
			}
			return ratelimit.Count
		}, redemptions)
		for _, r := range results {
			fmt.Println(r.States[0].Remaining, r.States[1].Remaining, r.Err)
		}
		return err
	})
}
