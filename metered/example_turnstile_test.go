package metered_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/metered"
)

// A group brings its own writes and what it is to be counted in to the database at once: what was taken for a visitor who is
// refused is given back, and no other visitor pays for it.
func ExampleTurnstile() {
	onPool(passGroup)
	// Output:
	// 2 1 metered: the token is not valid: minted for another subject
	// 1 0 <nil>
	// 1 0 metered: the token is not valid: used
	// 0 0 <nil>
	// 0 1 metered: over the rate of shop: 1 asked for, 0 of 2 left
}

func passGroup(ctx context.Context, db *pgxpool.Pool) error {
	minted, err := metered.NewTokenStore(db).Mint(ctx, shop, metered.Grant{Purpose: "sale", Subject: "ann", TTL: time.Hour})
	if err != nil {
		return err
	}
	var visits []metered.Visit
	for _, v := range []struct {
		customer string
		token    metered.Token
	}{
		{"bob", minted.Token}, // is ann's
		{"ann", minted.Token},
		{"ann", minted.Token},    // again
		{"cem", metered.Token{}}, // wants what asks for no token
		{"dee", metered.Token{}}, // comes late
	} {
		visit, err := metered.NewVisit(shop, []metered.Rate{
			{Scope: "shop", Amount: 1, Limit: 2, Window: 24 * time.Hour},
			{Scope: "customer:" + v.customer, Amount: 1, Limit: 1, Window: 24 * time.Hour},
		}, &metered.Redemption{Purpose: "sale", Subject: v.customer, Token: v.token})
		if err != nil {
			return err
		}
		visits = append(visits, visit)
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		turnstile, err := metered.NewTurnstile(visits)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{} // with the group's own writes
		turnstile.Queue(batch)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		entries, err := turnstile.PassTx(ctx, tx, func(place int) metered.Treatment {
			if place < 3 {
				return metered.Guarded
			}
			return metered.Counted
		})
		for _, e := range entries {
			fmt.Println(e.Standings[0].Remaining, e.Standings[1].Remaining, e.Err)
		}
		return err
	})
}
