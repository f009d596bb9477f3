package main

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/client"
)

// calls make the calls of clients/service.json.
var calls = map[string]func(ctx context.Context, c *client.Client, s *step) (any, error){
	"put": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		return c.SetStock(ctx, s.Variant, s.Settings, nil)
	},
	"stock": func(ctx context.Context, c *client.Client, s *step) (any, error) { return c.Stock(ctx, s.Variant) },
	"adjust": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		return c.AdjustStock(ctx, s.Variant, s.Delta, nil)
	},
	"delete": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		return struct{}{}, c.DeleteStock(ctx, s.Variant, nil)
	},
	"some": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		items, err := c.StocksOf(ctx, s.Variants)
		return idsOf(items), err
	},
	"list": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		var all []client.Stock
		for cursor := ""; ; {
			page, err := c.GroupStocks(ctx, s.Group, s.Limit, cursor)
			all = append(all, page.Items...)
			if cursor = page.NextCursor; err != nil || cursor == "" {
				return idsOf(all), err
			}
		}
	},
	"add":     func(ctx context.Context, c *client.Client, s *step) (any, error) { return add(ctx, c, s) },
	"reserve": reserve,
	"set": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		r, err := c.Set(ctx, s.Cart, s.Variant, s.Quantity, nil)
		if err != nil {
			return r, err
		}
		return c.Wait(ctx, r.RequestID, time.Minute)
	},
	"cart": func(ctx context.Context, c *client.Client, s *step) (any, error) { return c.Cart(ctx, s.Cart, 0, "") },
	"extend": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		extended, err := c.Extend(ctx, s.Cart, time.Duration(s.Seconds)*time.Second, nil)
		return client.Extended{Extended: extended}, err
	},
	"checkout": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		committed, err := c.Checkout(ctx, s.Cart, nil)
		return client.CheckedOut{Committed: committed}, err
	},
	"remove": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		return c.Remove(ctx, s.Cart, s.Variant, "", nil)
	},
	"reservation": func(ctx context.Context, c *client.Client, s *step) (any, error) { return c.Reservation(ctx, s.ID) },
	"commit": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		if s.Quantity > 0 {
			return c.CommitPart(ctx, s.ID, client.Part{Quantity: int64(s.Quantity)}, nil)
		}
		return c.Commit(ctx, s.ID, nil)
	},
	"extend hold": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		return c.ExtendHold(ctx, s.ID, time.Duration(s.Seconds)*time.Second, nil)
	},
	"release": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		return c.Release(ctx, s.ID, "", nil)
	},
	"history": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		items, err := c.History(ctx, s.ID)
		return client.History{Items: items}, err
	},
	"mint": func(ctx context.Context, c *client.Client, s *step) (any, error) {
		return c.MintAdmission(ctx, s.Subject, s.Variant, 0, nil)
	},
}

// add requests units, and waits for the outcome.
func add(ctx context.Context, c *client.Client, s *step) (client.Request, error) {
	opts := &client.CallOpts{IdempotencyKey: s.Key, Customer: s.Customer, AdmissionToken: s.Token, Wait: 10 * time.Second}
	r, err := c.Add(ctx, s.Cart, s.Variant, s.Quantity, opts)
	if err != nil || r.Finished() {
		return r, err
	}
	return c.Wait(ctx, r.RequestID, time.Minute)
}

// reserve is add, in the form of the TypeScript client's outcome.
func reserve(ctx context.Context, c *client.Client, s *step) (any, error) {
	r, err := add(ctx, c, s)
	status := map[string]string{"done": "held", "failed": "rejected"}[r.Status]
	return map[string]any{"status": status, "reason": r.Reason, "reservation": r.Reservation}, err
}

func idsOf(stocks []client.Stock) map[string][]string {
	ids := make([]string, len(stocks))
	for i := range stocks {
		ids[i] = stocks[i].VariantID
	}
	return map[string][]string{"ids": ids}
}

// contains reports whether a decoded value has all fields of the wanted one.
func contains(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		for name, value := range want {
			ok = ok && contains(object[name], value)
		}
		return ok
	case []any:
		list, ok := got.([]any)
		ok = ok && len(list) == len(want)
		for i := range want {
			ok = ok && contains(list[i], want[i])
		}
		return ok
	default:
		return reflect.DeepEqual(got, want)
	}
}

// field is the field of a decoded object at a path such as reservation.status.
func field(of any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		of = of.(map[string]any)[name]
	}
	return of
}

// payments pays for one cart, and not for another.
func payments(t *testing.T, c *client.Client) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.SetStock(t.Context(), "ticket", client.StockPatch{Stock: new(int64(2))}, nil)
	must(err)
	for cart, status := range map[string]string{"paid": "committed", "unpaid": "compensated"} {
		_, err := add(t.Context(), c, &step{Cart: cart, Variant: "ticket", Quantity: 1})
		must(err)
		begun, err := c.BeginCheckout(t.Context(), cart, "order-"+cart, "", nil)
		must(err)
		_, err = c.RecordPayment(t.Context(), begun.CheckoutID, cart == "paid", nil)
		must(err)
		ended, err := c.WaitCheckout(t.Context(), begun.CheckoutID, time.Minute)
		must(err)
		if begun.Status != "validating" || ended.Status != status || ended.CartID != cart {
			t.Errorf("%s: begun %+v, ended %+v", cart, begun, ended)
		}
	}
}
