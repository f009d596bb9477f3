package baselines

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// The script runs in a Redis written in Go, because a redis-server may be
// missing where the tests run.
func TestRedis(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	r := &Redis{client: newClient(redis.Options{Addr: server.Addr(), PoolSize: 4})}
	t.Cleanup(func() { _ = r.client.Close() })
	ctx := t.Context()
	must(t, r.Reset(ctx, Shop{Variants: 2, Stock: 10}))
	hold := func(ctx context.Context, variant int, quantity int64) error {
		return r.Hold(ctx, Request{TenantID: uuid.New(), HoldID: uuid.New(), CartID: "cart", VariantID: VariantID(variant), Quantity: quantity})
	}
	var buyers errgroup.Group
	soldOut := make(chan bool, 30)
	for range cap(soldOut) {
		buyers.Go(func() error {
			err := hold(ctx, 0, 1)
			soldOut <- errors.Is(err, ErrSoldOut)
			if errors.Is(err, ErrSoldOut) {
				return nil
			}
			return err
		})
	}
	must(t, buyers.Wait())
	close(soldOut)
	rejected := 0
	for out := range soldOut {
		if out {
			rejected++
		}
	}
	if rejected != 20 {
		t.Errorf("10 units: %d of 30 buyers were rejected", rejected)
	}
	must(t, r.Check(ctx, 10))
	if err := r.Check(ctx, 11); err == nil {
		t.Error("a hold that is missing was not found")
	}
	must(t, hold(ctx, 1, 10))
	if err := hold(ctx, 1, 1); !errors.Is(err, ErrSoldOut) {
		t.Errorf("the 11th unit of another variant: %v", err)
	}
	must(t, r.Reset(ctx, Shop{Variants: 1, Stock: 10}))
	must(t, r.Check(ctx, 0))
	server.SetError("LOADING")
	if err := hold(ctx, 0, 1); err == nil || errors.Is(err, ErrSoldOut) {
		t.Errorf("a server that answers an error: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("redis: %w", err))
	}
}
