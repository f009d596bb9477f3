package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

const (
	show   = "hamlet"
	seats  = 200
	buyers = 300
)

func main() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	evening, err := sell(ctx, db)
	db.Close()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d seats are sold to %d of %d buyers; %d payments failed, %d buyers came too late\n",
		evening.sold, seats, evening.orders, buyers, evening.declined, evening.late)
}

// evening is how the sale went.
type evening struct {
	sync.Mutex
	sold                   int64
	orders, declined, late int
}

// sell opens the sale and lets all buyers in at once.
func sell(ctx context.Context, db *pgxpool.Pool) (*evening, error) {
	if err := holdfast.Migrate(ctx, db); err != nil {
		return nil, err
	}
	if _, err := db.Exec(ctx, `CREATE TABLE IF NOT EXISTS ticket_orders (buyer text PRIMARY KEY, seats bigint NOT NULL)`); err != nil {
		return nil, err
	}
	client, err := holdfast.New(db, nil)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = client.Stop(context.WithoutCancel(ctx)) }()
	theatre, err := client.Tenant(ctx, "theatre")
	if err != nil {
		return nil, err
	}
	if _, err := theatre.SetStock(ctx, show, holdfast.StockPatch{Stock: new(int64(seats)), MaxPerCart: new(int32(4))}, nil); err != nil {
		return nil, err
	}
	e := &evening{}
	errs := make(chan error, buyers)
	for i := range buyers {
		go func() { errs <- e.buy(ctx, db, theatre, i) }()
	}
	for range buyers {
		if failed := <-errs; failed != nil {
			err = failed
		}
	}
	return e, err
}

// buy is one buyer, who wants one to four seats. One payment in ten fails.
func (e *evening) buy(ctx context.Context, db *pgxpool.Pool, theatre *holdfast.Tenant, i int) error {
	buyer, quantity := fmt.Sprint("buyer-", i), int32(1+i%4)
	added, err := theatre.Add(ctx, buyer, show, quantity, nil)
	if err != nil {
		return err
	}
	outcome, err := theatre.Wait(ctx, added.RequestID, time.Minute)
	if err != nil {
		return err
	}
	if outcome.Status != requests.Done {
		e.Lock()
		defer e.Unlock()
		e.late++
		return nil
	}
	if i%10 == 0 { // the card is declined
		_, err := theatre.Remove(ctx, buyer, show, reservations.PaymentFailed, nil)
		e.Lock()
		defer e.Unlock()
		e.declined++
		return err
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		held, err := theatre.CheckoutTx(ctx, tx, buyer, nil)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO ticket_orders VALUES ($1, $2)`, buyer, held[0].Quantity)
		return err
	})
	if err != nil {
		return err
	}
	e.Lock()
	defer e.Unlock()
	e.orders++
	e.sold += int64(quantity)
	return nil
}
