package holdfast_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/verify"
)

// newShop makes a client and its tenant shop, with 100 shirts and a block of
// three seats. With start the client is started, and stopped when the test ends.
func newShop(t *testing.T, db *pgxpool.Pool, config *holdfast.Config, start bool) *holdfast.Tenant {
	t.Helper()
	client, err := holdfast.New(db, config)
	pgtest.Must(t, err)
	if start {
		pgtest.Must(t, client.Start(t.Context()))
		t.Cleanup(func() { pgtest.Must(t, client.Stop(context.Background())) })
	}
	shop, err := client.Tenant(t.Context(), "shop")
	pgtest.Must(t, err)
	_, err = shop.SetStock(t.Context(), "shirt", holdfast.StockPatch{Stock: new(int64(100))}, nil)
	pgtest.Must(t, err)
	_, err = shop.CreateUnits(t.Context(), "hall", []holdfast.NewUnit{{UnitID: "A1"}, {UnitID: "A2"}, {UnitID: "A3"}}, nil)
	pgtest.Must(t, err)
	return shop
}

// held adds shirts to a cart and returns the hold.
func held(t *testing.T, shop *holdfast.Tenant, cart string, quantity int32) *holdfast.Reservation {
	t.Helper()
	r, err := shop.Add(t.Context(), cart, "shirt", quantity, nil)
	pgtest.Must(t, err)
	return outcome(t, shop, r, "").Reservation
}

// outcome waits for a request, which ends with the reason, "" for done.
func outcome(t *testing.T, shop *holdfast.Tenant, r holdfast.Outcome, reason requests.Reason) holdfast.Outcome {
	t.Helper()
	o, err := shop.Wait(t.Context(), r.RequestID, 30*time.Second)
	pgtest.Must(t, err)
	if want := map[bool]requests.Status{true: requests.Done, false: requests.Failed}[reason == ""]; o.Status != want || o.Reason != reason {
		t.Fatalf("the request is %s %q, want %s %q", o.Status, o.Reason, want, reason)
	}
	return o
}

// verbs are the calls that write, each on a cart that holds one shirt.
var verbs = map[string]func(ctx context.Context, shop *holdfast.Tenant, cart string, hold uuid.UUID, opts *holdfast.CallOpts) (any, error){
	"SetStock": func(ctx context.Context, shop *holdfast.Tenant, cart string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.SetStock(ctx, "of "+cart, holdfast.StockPatch{Stock: new(int64(7))}, opts)
	},
	"AdjustStock": func(ctx context.Context, shop *holdfast.Tenant, _ string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.AdjustStock(ctx, "shirt", 1, opts)
	},
	"Add": func(ctx context.Context, shop *holdfast.Tenant, cart string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		r, err := shop.Add(ctx, cart, "shirt", 1, opts)
		return r.RequestID, err
	},
	"Set": func(ctx context.Context, shop *holdfast.Tenant, cart string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		r, err := shop.Set(ctx, cart, "shirt", 2, opts)
		return r.RequestID, err
	},
	"AddUnits": func(ctx context.Context, shop *holdfast.Tenant, cart string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		r, err := shop.AddUnits(ctx, cart, "hall", requests.Units{Any: true}, 1, opts)
		return r.RequestID, err
	},
	"CreateUnits": func(ctx context.Context, shop *holdfast.Tenant, cart string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.CreateUnits(ctx, "hall of "+cart, []holdfast.NewUnit{{UnitID: "B1"}}, opts)
	},
	"Remove": func(ctx context.Context, shop *holdfast.Tenant, cart string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.Remove(ctx, cart, "shirt", "", opts)
	},
	"Extend": func(ctx context.Context, shop *holdfast.Tenant, cart string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.Extend(ctx, cart, time.Minute, opts)
	},
	"Checkout": func(ctx context.Context, shop *holdfast.Tenant, cart string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.Checkout(ctx, cart, opts)
	},
	"Commit": func(ctx context.Context, shop *holdfast.Tenant, _ string, hold uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.Commit(ctx, hold, opts)
	},
	"Release": func(ctx context.Context, shop *holdfast.Tenant, _ string, hold uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.Release(ctx, hold, reservations.Abandoned, opts)
	},
	"ExtendHold": func(ctx context.Context, shop *holdfast.Tenant, _ string, hold uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.ExtendHold(ctx, hold, time.Minute, opts)
	},
	"BeginCheckout": func(ctx context.Context, shop *holdfast.Tenant, cart string, _ uuid.UUID, opts *holdfast.CallOpts) (any, error) {
		return shop.BeginCheckout(ctx, cart, "order "+cart, "", opts)
	},
}

// A verb that is called again under its key returns what it returned, and does
// nothing. Another call under that key is refused. Both hold whether the calls
// are committed in groups or each on its own.
func TestOneEffectForEachKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	grouped := newShop(t, db, nil, true)
	alone := newShop(t, db, &holdfast.Config{NoLanes: true, NoMaintenance: true, NoDetector: true, NoProjections: true}, false)
	recorded := func() int64 { return pgtest.Int(t, db, `SELECT count(*) FROM audit_log`) }
	for how, shop := range map[string]*holdfast.Tenant{"grouped": grouped, "alone": alone} {
		for name, verb := range verbs {
			t.Run(how+" "+name, func(t *testing.T) { //nolint:paralleltest // the record is counted
				cart := how + " " + name
				hold := held(t, grouped, cart, 1).ReservationID
				opts := &holdfast.CallOpts{IdempotencyKey: "key of " + cart, CorrelationID: "c-1", Actor: audit.User("ann")}
				first, err := verb(t.Context(), shop, cart, hold, opts)
				pgtest.Must(t, err)
				if id, ok := first.(uuid.UUID); ok {
					outcome(t, grouped, holdfast.Outcome{Request: holdfast.Request{RequestID: id}}, "")
				}
				before := recorded()
				again, err := verb(t.Context(), shop, cart, hold, opts)
				pgtest.Must(t, err)
				if diff := cmp.Diff(first, again); diff != "" {
					t.Errorf("repeated (-first +again)\n%s", diff)
				}
				if n := recorded() - before; n != 0 {
					t.Errorf("the repetition wrote %d records", n)
				}
				if _, err := shop.AdjustStock(t.Context(), "shirt", 9, opts); !errors.Is(err, holdfast.ErrKeyReused) {
					t.Errorf("another call under the key returned %v, want ErrKeyReused", err)
				}
			})
		}
	}
	report, err := verify.Run(t.Context(), db, verify.Config{})
	pgtest.Must(t, err)
	if !report.OK {
		t.Error(report.Summary())
	}
}

// joining are the verbs that join a transaction and finish in it. carts has the
// holds of carts that are named after their verb.
func joining(ctx context.Context, tx pgx.Tx, shop *holdfast.Tenant, carts map[string]*holdfast.Reservation) map[string]func() (any, error) {
	opts := &holdfast.CallOpts{IdempotencyKey: "of SetStockTx"}
	return map[string]func() (any, error){
		"SetStock": func() (any, error) {
			return shop.SetStockTx(ctx, tx, "cap", holdfast.StockPatch{Stock: new(int64(1))}, opts)
		},
		"AdjustStock": func() (any, error) { return shop.AdjustStockTx(ctx, tx, "shirt", -1, nil) },
		"Checkout":    func() (any, error) { return shop.CheckoutTx(ctx, tx, "checkout", nil) },
		"Remove":      func() (any, error) { return shop.RemoveTx(ctx, tx, "remove", "", "", nil) },
		"Extend":      func() (any, error) { return shop.ExtendTx(ctx, tx, "extend", time.Minute, nil) },
		"Commit":      func() (any, error) { return shop.CommitTx(ctx, tx, carts["commit"].ReservationID, nil) },
		"Release": func() (any, error) {
			return shop.ReleaseTx(ctx, tx, carts["release"].ReservationID, reservations.Abandoned, nil)
		},
		"ExtendHold": func() (any, error) {
			return shop.ExtendHoldTx(ctx, tx, carts["extend hold"].ReservationID, time.Minute, nil)
		},
		"BeginCheckout": func() (any, error) { return shop.BeginCheckoutTx(ctx, tx, "begin", "order", "", nil) },
		"CreateUnits": func() (any, error) {
			return shop.CreateUnitsTx(ctx, tx, "hall", []holdfast.NewUnit{{UnitID: "Z9"}}, nil)
		},
	}
}

// Every verb with Tx takes effect with the caller's transaction, and not
// without it.
func TestVerbsJoinATransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	shop := newShop(t, db, nil, true)
	for _, commit := range []bool{false, true} {
		carts := map[string]*holdfast.Reservation{}
		for _, cart := range []string{"checkout", "remove", "extend", "commit", "release", "extend hold", "begin"} {
			carts[cart] = held(t, shop, cart, 1)
		}
		before := pgtest.Int(t, db, `SELECT count(*) FROM audit_log`)
		tx, err := db.Begin(t.Context())
		pgtest.Must(t, err)
		ctx := t.Context()
		var added, neighbours, seats holdfast.Outcome
		for name, call := range joining(ctx, tx, shop, carts) {
			if _, err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		added, err = shop.AddTx(ctx, tx, "add", "shirt", 1, nil)
		pgtest.Must(t, err)
		_, err = shop.SetTx(ctx, tx, "set", "shirt", 2, nil)
		pgtest.Must(t, err)
		seats, err = shop.AddUnitsTx(ctx, tx, "seats", "hall", requests.Units{IDs: []string{"A1"}}, 0, nil)
		pgtest.Must(t, err)
		neighbours, err = shop.AddUnitsTx(ctx, tx, "any", "hall", requests.Units{Contiguous: true}, 2, nil)
		pgtest.Must(t, err)
		if !commit {
			pgtest.Must(t, tx.Rollback(ctx))
			if n := pgtest.Int(t, db, `SELECT count(*) FROM audit_log`); n != before {
				t.Errorf("rolled back, %d records are there", n-before)
			}
			if _, err := shop.Request(ctx, added.RequestID); !errors.Is(err, holdfast.ErrNotFound) {
				t.Errorf("rolled back, the request is found: %v", err)
			}
			continue
		}
		pgtest.Must(t, tx.Commit(ctx))
		for _, r := range []holdfast.Outcome{added, seats, neighbours} {
			outcome(t, shop, r, "")
		}
		for cart, want := range map[string]reservations.Status{
			"checkout": reservations.Committed, "remove": reservations.Released, "commit": reservations.Committed, "release": reservations.Released,
		} {
			r, err := shop.Reservation(ctx, carts[cart].ReservationID)
			pgtest.Must(t, err)
			if r.Status != want {
				t.Errorf("the hold of %s is %s, want %s", cart, r.Status, want)
			}
		}
	}
}

// What is refused has one name at the door.
func TestErrorsHaveOneName(t *testing.T) {
	t.Parallel()
	shop := newShop(t, pgtest.New(t), nil, true)
	ctx, none := t.Context(), uuid.New()
	hold := held(t, shop, "ann's", 3)
	_, err := shop.Commit(ctx, hold.ReservationID, nil)
	pgtest.Must(t, err)
	conflict := func(err error) bool {
		c, ok := errors.AsType[*holdfast.ConflictError](err)
		return ok && c.Actual == reservations.Committed
	}
	invalid := func(field string) func(error) bool {
		return func(err error) bool {
			i, ok := errors.AsType[*holdfast.InvalidError](err)
			return ok && i.Field == field
		}
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	for name, c := range map[string]struct {
		call func() (any, error)
		want func(error) bool
	}{
		"an unknown stock":        {func() (any, error) { return shop.Stock(ctx, "cap") }, is(holdfast.ErrUnknownVariant)},
		"less than is held":       {func() (any, error) { return shop.AdjustStock(ctx, "shirt", -1000, nil) }, is(holdfast.ErrBelowReserved)},
		"an unknown request":      {func() (any, error) { return shop.Request(ctx, none) }, is(holdfast.ErrNotFound)},
		"to wait for it":          {func() (any, error) { return shop.Wait(ctx, none, time.Second) }, is(holdfast.ErrNotFound)},
		"an unknown hold":         {func() (any, error) { return shop.Commit(ctx, none, nil) }, is(holdfast.ErrNotFound)},
		"an unknown reservation":  {func() (any, error) { return shop.Reservation(ctx, none) }, is(holdfast.ErrNotFound)},
		"an unknown checkout":     {func() (any, error) { return shop.GetCheckout(ctx, none) }, is(holdfast.ErrNotFound)},
		"its payment":             {func() (any, error) { return shop.RecordPayment(ctx, none, true, nil) }, is(holdfast.ErrNotFound)},
		"an empty cart":           {func() (any, error) { return shop.Checkout(ctx, "nobody's", nil) }, is(holdfast.ErrCartEmpty)},
		"its saga":                {func() (any, error) { return shop.BeginCheckout(ctx, "nobody's", "order", "", nil) }, is(holdfast.ErrCartEmpty)},
		"what is committed":       {func() (any, error) { return shop.Release(ctx, hold.ReservationID, reservations.Abandoned, nil) }, conflict},
		"no quantity":             {func() (any, error) { return shop.Add(ctx, "ann's", "shirt", 0, nil) }, invalid("quantity")},
		"an unknown reason":       {func() (any, error) { return shop.Release(ctx, hold.ReservationID, "whim", nil) }, invalid("reason")},
		"no units":                {func() (any, error) { return shop.AddUnits(ctx, "ann's", "hall", requests.Units{}, 0, nil) }, invalid("quantity")},
		"a name with line breaks": {func() (any, error) { return shop.SetStock(ctx, "a\nb", holdfast.StockPatch{Stock: new(int64(1))}, nil) }, invalid("variant_id")},
	} {
		if _, err := c.call(); !c.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, err := shop.Add(ctx, "ann's", "cap", 1, nil)
	pgtest.Must(t, err)
	outcome(t, shop, r, requests.UnknownVariant)
}

// A checkout with a payment commits what the cart held, or gives it back. A
// payment that is repeated under its key is recorded once.
func TestPayments(t *testing.T) {
	t.Parallel()
	shop := newShop(t, pgtest.New(t), nil, true)
	ctx := t.Context()
	for cart, paid := range map[string]bool{"paid": true, "failed": false} {
		held(t, shop, cart, 2)
		begun, err := shop.BeginCheckout(ctx, cart, "order of "+cart, "", nil)
		pgtest.Must(t, err)
		if _, err := shop.Checkout(ctx, cart, nil); !errors.Is(err, holdfast.ErrCheckoutInProgress) {
			t.Errorf("a second checkout returned %v, want ErrCheckoutInProgress", err)
		}
		opts := &holdfast.CallOpts{IdempotencyKey: "payment of " + cart}
		for range 2 {
			ended, err := shop.RecordPayment(ctx, begun.CheckoutID, paid, opts)
			pgtest.Must(t, err)
			if ended.CheckoutID != begun.CheckoutID {
				t.Errorf("%+v, want the checkout %s", ended, begun.CheckoutID)
			}
		}
		pgtest.Until(t, "the checkout has ended", func() bool {
			c, err := shop.GetCheckout(ctx, begun.CheckoutID)
			pgtest.Must(t, err)
			return c.EndedAt != nil
		})
		if _, err := shop.RecordPayment(ctx, begun.CheckoutID, !paid, nil); err == nil {
			t.Error("another result of the payment was accepted")
		} else if c, ok := errors.AsType[*holdfast.PaymentConflictError](err); !ok {
			t.Errorf("%v (%v), want a conflict", err, c)
		}
	}
	stock, err := shop.Stock(ctx, "shirt")
	pgtest.Must(t, err)
	if stock.Stock != 98 || stock.Reserved != 0 {
		t.Errorf("%d in stock, %d reserved; want 98 and 0", stock.Stock, stock.Reserved)
	}
}

// A process that only inserts needs no Start. Another one decides, on the River
// client of its program.
func TestProcessesShareTheWork(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	inserting := newShop(t, db, &holdfast.Config{NoLanes: true}, false)
	queued, err := inserting.Add(t.Context(), "ann's", "shirt", 101, nil)
	pgtest.Must(t, err)
	if o, err := inserting.Wait(t.Context(), queued.RequestID, 0); err != nil || o.Status != requests.Queued {
		t.Errorf("%s %v, want it queued, as nothing decides", o.Status, err)
	}
	own := &river.Config{}
	newShop(t, db, &holdfast.Config{River: own}, true)
	theirs, err := river.NewClient(riverpgxv5.New(db), own)
	pgtest.Must(t, err)
	pgtest.Must(t, theirs.Start(t.Context()))
	t.Cleanup(func() { pgtest.Must(t, theirs.Stop(context.Background())) })
	outcome(t, inserting, queued, requests.OutOfStock)
}

// A client is started once. A call after Stop has its own transaction.
func TestStartAndStop(t *testing.T) {
	t.Parallel()
	client, err := holdfast.New(pgtest.New(t), nil)
	pgtest.Must(t, err)
	pgtest.Must(t, client.Stop(t.Context()))
	pgtest.Must(t, client.Start(t.Context()))
	if err := client.Start(t.Context()); err == nil {
		t.Error("it was started twice")
	}
	shop, err := client.Tenant(t.Context(), "shop")
	pgtest.Must(t, err)
	for range 2 {
		pgtest.Must(t, client.Stop(t.Context()))
		if _, err := shop.Add(t.Context(), "ann's", "shirt", 1, nil); err != nil {
			t.Errorf("after Stop: %v", err)
		}
	}
	if err := client.Start(t.Context()); err == nil {
		t.Error("it was started again")
	}
}

// A subscription delivers what the client has recorded.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	client, err := holdfast.New(db, nil)
	pgtest.Must(t, err)
	shop := newShop(t, db, nil, false)
	s, err := client.Subscribe(t.Context(), "mailer", audit.SubscriptionConfig{FromBeginning: true})
	pgtest.Must(t, err)
	var actions []string
	pgtest.Until(t, "the stock's record is delivered", func() bool {
		_, err := s.RunOnce(t.Context(), func(_ context.Context, d *audit.Delivery) error {
			for _, r := range d.Records {
				actions = append(actions, r.Action)
			}
			return nil
		})
		pgtest.Must(t, err)
		return len(actions) > 0
	})
	if actions[0] != "stock.set" || shop.Name != "shop" {
		t.Errorf("delivered %q", actions)
	}
}

// The example of the documentation is the one that is run, and fits 25 lines.
func TestDocumentedExample(t *testing.T) {
	t.Parallel()
	body := func(file, prefix string) string {
		text, err := os.ReadFile(file)
		pgtest.Must(t, err)
		var lines []string
		for line := range strings.Lines(string(text)) {
			line, found := strings.CutPrefix(strings.TrimRight(line, "\n"), prefix)
			if found && (len(lines) > 0 || strings.HasPrefix(line, "func sell(")) {
				lines = append(lines, line)
				if line == "}" {
					break
				}
			}
		}
		if len(lines) == 0 || len(lines) > 25 {
			t.Errorf("%s has an example of %d lines, want at most 25", file, len(lines))
		}
		return strings.Join(lines, "\n")
	}
	want := body("example_test.go", "")
	for file, prefix := range map[string]string{"doc.go": "//\t", "README.md": "", "docs/library.md": ""} {
		if diff := cmp.Diff(want, body(file, prefix)); diff != "" {
			t.Errorf("%s (-example_test.go +%s)\n%s", file, file, diff)
		}
	}
}
