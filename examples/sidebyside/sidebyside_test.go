package sidebyside_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/examples/sidebyside"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// Before, side by side, and after: no unit is sold twice, and both ways have the
// same stock.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	_, err := db.Exec(ctx, sidebyside.Tables)
	pgtest.Must(t, err)
	_, err = db.Exec(ctx, `INSERT INTO products VALUES ('shoe', 40), ('sock', 3)`)
	pgtest.Must(t, err)
	client, err := holdfast.New(db, nil)
	pgtest.Must(t, err)
	pgtest.Must(t, client.Start(ctx))
	t.Cleanup(func() { pgtest.Must(t, client.Stop(context.WithoutCancel(ctx))) })
	tenant, err := client.Tenant(ctx, "shop")
	pgtest.Must(t, err)
	shop := &sidebyside.Shop{DB: db, Stock: tenant}

	pgtest.Must(t, shop.Locked(ctx, "order-0", "shoe", 10))
	pgtest.Must(t, shop.Adopt(ctx))
	pgtest.Must(t, shop.Hold(ctx, "ann's", "sock", 2))
	if err := shop.Beside(ctx, "order-1", "sock", 2); !errors.Is(err, sidebyside.ErrSoldOut) {
		t.Errorf("took units that a cart holds: %v", err)
	}

	var sold atomic.Int64
	var crowd sync.WaitGroup
	for i := range 30 {
		crowd.Go(func() {
			order := fmt.Sprint("order-", 100+i)
			if i%2 == 0 {
				err := shop.Beside(ctx, order, "shoe", 2)
				count(t, &sold, err)
				return
			}
			err := shop.Hold(ctx, order, "shoe", 2)
			if err == nil {
				err = shop.Order(ctx, order, order)
			}
			count(t, &sold, err)
		})
	}
	crowd.Wait()
	if sold.Load() != 30 {
		t.Errorf("%d shoes are sold, want 30", sold.Load())
	}
	pgtest.Must(t, shop.Order(ctx, "order-2", "ann's"))
	if n := pgtest.Int(t, db, `SELECT count(*) FROM (`+sidebyside.Differences+`) AS d`, "shop"); n != 0 {
		t.Errorf("%d products have two stocks", n)
	}
	if n := pgtest.Int(t, db, `SELECT (SELECT sum(stock) FROM products) + (SELECT sum(quantity) FROM orders)`); n != 43 {
		t.Errorf("the stock and the orders are %d units, want 43", n)
	}
}

func count(t *testing.T, sold *atomic.Int64, err error) {
	switch {
	case err == nil:
		sold.Add(2)
	case !errors.Is(err, sidebyside.ErrSoldOut):
		t.Error(err)
	}
}
