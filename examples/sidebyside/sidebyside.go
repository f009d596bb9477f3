package sidebyside

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/requests"
)

// Tables are the shop's.
const Tables = `
CREATE TABLE products (id text PRIMARY KEY, stock bigint NOT NULL CHECK (stock >= 0));
CREATE TABLE orders (id text NOT NULL, product text NOT NULL REFERENCES products, quantity bigint NOT NULL, PRIMARY KEY (id, product))`

// ErrSoldOut is the outcome of an order for more than there is.
var ErrSoldOut = errors.New("sold out")

// Shop sells the products of the tables.
type Shop struct {
	DB    *pgxpool.Pool
	Stock *holdfast.Tenant
}

// Locked is what the shop has before: it reads the row under a lock, checks, and
// writes.
func (s *Shop) Locked(ctx context.Context, order, product string, quantity int64) error {
	return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		var stock int64
		if err := tx.QueryRow(ctx, `SELECT stock FROM products WHERE id = $1 FOR UPDATE`, product).Scan(&stock); err != nil {
			return err
		}
		if stock < quantity {
			return ErrSoldOut
		}
		return take(ctx, tx, order, product, quantity)
	})
}

// take writes the order and lowers the stock of the shop's table.
func take(ctx context.Context, tx pgx.Tx, order, product string, quantity int64) error {
	if _, err := tx.Exec(ctx, `UPDATE products SET stock = stock - $2 WHERE id = $1`, product, quantity); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1, $2, $3)`, order, product, quantity)
	return err
}

// Adopt copies what the table has into Holdfast, while no order writes it.
func (s *Shop) Adopt(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `LOCK TABLE products IN SHARE MODE`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT id, stock FROM products ORDER BY id`)
		if err != nil {
			return err
		}
		products, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
			ID    string
			Stock int64
		}])
		if err != nil {
			return err
		}
		for _, p := range products {
			if _, err := s.Stock.SetStockTx(ctx, tx, p.ID, holdfast.StockPatch{Stock: &p.Stock}, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Beside is Locked while both ways sell. Holdfast refuses units that a cart holds.
func (s *Shop) Beside(ctx context.Context, order, product string, quantity int64) error {
	return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		_, err := s.Stock.AdjustStockTx(ctx, tx, product, -quantity, nil) // instead of SELECT … FOR UPDATE
		if errors.Is(err, holdfast.ErrBelowReserved) {
			return ErrSoldOut
		}
		if err != nil {
			return err
		}
		return take(ctx, tx, order, product, quantity)
	})
}

// Hold takes units out of sale for a cart, for 15 minutes. It is called when the
// shopper adds the product, and not in the transaction of the order.
func (s *Shop) Hold(ctx context.Context, cart, product string, quantity int32) error {
	added, err := s.Stock.Add(ctx, cart, product, quantity, nil)
	if err != nil {
		return err
	}
	outcome, err := s.Stock.Wait(ctx, added.RequestID, 10*time.Second)
	switch {
	case err != nil:
		return err
	case outcome.Status == requests.Done:
		return nil
	case outcome.Reason == requests.OutOfStock:
		return ErrSoldOut
	default:
		return fmt.Errorf("%s is %s: %s", product, outcome.Status, outcome.Reason)
	}
}

// Order commits what the cart holds in the transaction that writes the order. The
// call of take goes on lowering the shop's own column while both ways sell.
func (s *Shop) Order(ctx context.Context, order, cart string) error {
	return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		sold, err := s.Stock.CheckoutTx(ctx, tx, cart, nil)
		if err != nil {
			return err
		}
		for _, r := range sold {
			if err := take(ctx, tx, order, r.ResourceKey, r.Quantity); err != nil {
				return err
			}
		}
		return nil
	})
}

// Differences are the products of which the two ways have another stock. There
// are none at any time, because each transaction changes both or neither.
const Differences = `
SELECT p.id, p.stock, s.stock
FROM products p
JOIN tenants t ON t.name = $1
LEFT JOIN inventory_stocks s ON s.tenant_id = t.tenant_id AND s.variant_id = p.id
WHERE p.stock IS DISTINCT FROM s.stock`
