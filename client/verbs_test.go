package client_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/client"
)

// sent are the calls of the verbs: the method, the path and the body.
var sent = map[string]func(ctx context.Context, c *client.Client) error{
	`POST /v1/carts/c/items {"block":"hall","unit_ids":["A1","A2"]}`: func(ctx context.Context, c *client.Client) error {
		return second(c.AddUnits(ctx, "c", "hall", client.Units{IDs: []string{"A1", "A2"}}, 2, nil))
	},
	`POST /v1/carts/c/items {"any_of":2,"block":"hall","contiguous":true}`: func(ctx context.Context, c *client.Client) error {
		return second(c.AddUnits(ctx, "c", "hall", client.Units{Contiguous: true}, 2, nil))
	},
	`POST /v1/carts/c/items {"lines":[{"quantity":1,"variant_id":"hat"},{"kit_id":"camp","quantity":2}],"partial":true}`: func(ctx context.Context, c *client.Client) error {
		lines := client.Lines{Items: []client.Line{{VariantID: "hat", Quantity: 1}, {KitID: "camp", Quantity: 2}}, Partial: true}
		return second(c.AddLines(ctx, "c", lines, nil))
	},
	`POST /v1/carts/c/items {"allotment":"club","quantity":1,"variant_id":"hat","wait_for_stock":true}`: func(ctx context.Context, c *client.Client) error {
		return second(c.Add(ctx, "c", "hat", 1, &client.CallOpts{Allotment: "club", WaitForStock: true}))
	},
	`PATCH /v1/carts/c/items/hat {"allotment":"club","quantity":0}`: func(ctx context.Context, c *client.Client) error {
		return second(c.Set(ctx, "c", "hat", 0, &client.CallOpts{Allotment: "club"}))
	},
	`DELETE /v1/carts/c/items/hat?reason=operator `: func(ctx context.Context, c *client.Client) error {
		return second(c.Remove(ctx, "c", "hat", "operator", nil))
	},
	`DELETE /v1/carts/c/kits/camp `: func(ctx context.Context, c *client.Client) error {
		return second(c.RemoveKit(ctx, "c", "camp", "", nil))
	},
	`POST /v1/carts/c/transfer {"to":"d"}`: func(ctx context.Context, c *client.Client) error {
		return second(c.TransferCart(ctx, "c", "d", nil))
	},
	`GET /v1/carts/c?cursor=next&limit=5 `: func(ctx context.Context, c *client.Client) error {
		return second(c.Cart(ctx, "c", 5, "next"))
	},
	`POST /v1/requests/r/retry `: func(ctx context.Context, c *client.Client) error {
		return second(c.Retry(ctx, "r", nil))
	},
	`GET /v1/reservations/r/history `: func(ctx context.Context, c *client.Client) error {
		return second(c.History(ctx, "r"))
	},
	`POST /v1/reservations/r/commit {"quantity":1}`: func(ctx context.Context, c *client.Client) error {
		return second(c.CommitPart(ctx, "r", client.Part{Quantity: 1}, nil))
	},
	`POST /v1/reservations/r/return {"reason":"torn","unit_ids":["A1"]}`: func(ctx context.Context, c *client.Client) error {
		return second(c.Return(ctx, "r", client.Part{UnitIDs: []string{"A1"}}, &client.CallOpts{Reason: "torn"}))
	},
	`GET /v1/checkouts/k `: func(ctx context.Context, c *client.Client) error {
		return second(c.GetCheckout(ctx, "k"))
	},
	`POST /v1/admissions {"subject":"ann","ttl_seconds":60,"variant_id":"hat"}`: func(ctx context.Context, c *client.Client) error {
		return second(c.MintAdmission(ctx, "ann", "hat", time.Minute, nil))
	},
	`POST /v1/stocks/transfer {"from":"a","quantity":3,"to":"b"}`: func(ctx context.Context, c *client.Client) error {
		return second(c.TransferStock(ctx, "a", "b", 3, nil))
	},
	`DELETE /v1/stocks/hat `:             func(ctx context.Context, c *client.Client) error { return c.DeleteStock(ctx, "hat", nil) },
	`PUT /v1/lanes/hot/variants/hat `:    func(ctx context.Context, c *client.Client) error { return second(c.Pin(ctx, "hat", true, nil)) },
	`DELETE /v1/lanes/hot/variants/hat `: func(ctx context.Context, c *client.Client) error { return second(c.Pin(ctx, "hat", false, nil)) },
	`GET /v1/stocks?variant_id=a&variant_id=b `: func(ctx context.Context, c *client.Client) error {
		return second(c.StocksOf(ctx, []string{"a", "b"}))
	},
	`GET /v1/stocks?group=shirts&limit=10 `: func(ctx context.Context, c *client.Client) error {
		return second(c.GroupStocks(ctx, "shirts", 10, ""))
	},
	`PUT /v1/groups/shirts {"max_per_customer":0}`: func(ctx context.Context, c *client.Client) error {
		return second(c.SetGroup(ctx, "shirts", client.GroupPatch{MaxPerCustomer: new(int32)}, nil))
	},
	`GET /v1/groups/shirts `: func(ctx context.Context, c *client.Client) error { return second(c.Group(ctx, "shirts")) },
	`PUT /v1/kits/camp {"parts":[{"quantity":4,"variant_id":"peg"}]}`: func(ctx context.Context, c *client.Client) error {
		return second(c.SetKit(ctx, "camp", []client.KitPart{{VariantID: "peg", Quantity: 4}}, nil))
	},
	`DELETE /v1/kits/camp `: func(ctx context.Context, c *client.Client) error { return c.DeleteKit(ctx, "camp", nil) },
	`GET /v1/kits/camp `:    func(ctx context.Context, c *client.Client) error { return second(c.Kit(ctx, "camp")) },
	`GET /v1/kits `:         func(ctx context.Context, c *client.Client) error { return second(c.Kits(ctx, 0, "")) },
	`PUT /v1/stocks/hat/allotments/club {"quantity":2}`: func(ctx context.Context, c *client.Client) error {
		return second(c.SetAllotment(ctx, "hat", "club", 2, nil, nil))
	},
	`DELETE /v1/stocks/hat/allotments/club `: func(ctx context.Context, c *client.Client) error {
		return c.EndAllotment(ctx, "hat", "club", nil)
	},
	`GET /v1/stocks/hat/allotments/club `: func(ctx context.Context, c *client.Client) error {
		return second(c.Allotment(ctx, "hat", "club"))
	},
	`GET /v1/stocks/hat/allotments?limit=1 `: func(ctx context.Context, c *client.Client) error {
		return second(c.Allotments(ctx, "hat", 1, ""))
	},
	`GET /v1/units/hall?limit=1 `: func(ctx context.Context, c *client.Client) error { return second(c.Block(ctx, "hall", 1, "")) },
	"POST /v1/stocks/import variant_id,stock\nhat,1\n": func(ctx context.Context, c *client.Client) error {
		return second(c.ImportStocks(ctx, client.CSV, strings.NewReader("variant_id,stock\nhat,1\n"), nil))
	},
	"PUT /v1/units/hall/import {\"unit_id\":\"A1\"}\n": func(ctx context.Context, c *client.Client) error {
		return second(c.ImportUnits(ctx, "hall", client.NDJSON, strings.NewReader("{\"unit_id\":\"A1\"}\n"), nil))
	},
}

func second[T any](_ T, err error) error { return err }

func TestVerbsSend(t *testing.T) {
	t.Parallel()
	for want, call := range sent {
		s, shop := serve(t, says(http.StatusOK, `{}`))
		if err := call(t.Context(), shop); err != nil || len(s.calls) != 1 || s.calls[0] != want {
			t.Errorf("%q, %v; want %q", s.calls, err, want)
		}
	}
}
