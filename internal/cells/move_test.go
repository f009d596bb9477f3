package cells_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/cells"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/verify"
)

// world is two cells that are served by a client each, and a tenant in the first
// one.
type world struct {
	t       *testing.T
	cells   []cells.Cell
	clients map[string]*holdfast.Client
	tenant  uuid.UUID
	key     string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, holdfast.Config{NoDetector: true})
}

func newWorldWith(t *testing.T, config holdfast.Config) *world {
	t.Helper()
	w := &world{t: t, clients: map[string]*holdfast.Client{}}
	for _, name := range []string{"eu", "us"} {
		db := pgtest.New(t)
		client, err := holdfast.New(db, &config)
		pgtest.Must(t, err)
		pgtest.Must(t, client.Start(t.Context()))
		t.Cleanup(func() { _ = client.Stop(context.Background()) })
		w.cells = append(w.cells, cells.Cell{Name: name, Pool: db})
		w.clients[name] = client
	}
	shop, err := w.clients["eu"].Tenant(t.Context(), "shop")
	pgtest.Must(t, err)
	w.tenant = shop.TenantID
	w.key, _, err = tenants.CreateKey(t.Context(), w.cells[0].Pool, w.tenant, "key", tenants.AllScopes())
	pgtest.Must(t, err)
	return w
}

func (w *world) in(cell string) *holdfast.Tenant { return w.clients[cell].TenantByID(w.tenant) }

// calledLinger is the Linger of a tenant that is called: a busy machine delays calls
// that are under way.
const calledLinger = 5 * time.Second

// move moves the tenant, however busy the machine is.
func (w *world) move(to string, config cells.MoveConfig) (cells.MoveReport, error) {
	config.WaitMax, config.PauseMax = 5*time.Minute, 2*time.Minute
	config.Linger = max(config.Linger, time.Millisecond)
	return cells.Move(w.t.Context(), w.cells, "shop", to, config)
}

// check verifies both cells, and that the tenant is in one of them only.
func (w *world) check(at string) {
	w.t.Helper()
	for _, c := range w.cells {
		report, err := verify.Run(w.t.Context(), c.Pool, verify.Config{})
		pgtest.Must(w.t, err)
		if !report.OK {
			w.t.Errorf("cell %s: %s", c.Name, report.Summary())
		}
		if n := pgtest.Int(w.t, c.Pool, `SELECT count(*) FROM tenants WHERE name = 'shop'`); (n == 1) != (c.Name == at) {
			w.t.Errorf("cell %s has %d tenants", c.Name, n)
		}
	}
	faults, err := cells.Verify(w.t.Context(), w.cells)
	if err != nil || len(faults) > 0 {
		w.t.Errorf("%v, %v over the cells", faults, err)
	}
}

// fill gives the tenant a history: held, released, committed and rejected.
func (w *world) fill(cell string, carts int) {
	w.t.Helper()
	ctx, shop := w.t.Context(), w.in(cell)
	for variant, lane := range map[string]lanes.Wish{"hot": lanes.WishHot, "normal": lanes.WishAuto} {
		_, err := shop.SetStock(ctx, variant, holdfast.StockPatch{Stock: new(int64(carts)), Lane: &lane}, nil)
		pgtest.Must(w.t, err)
	}
	for i := range carts {
		cart := fmt.Sprint("cart-", i)
		for _, variant := range []string{"hot", "normal"} {
			r, err := shop.Add(ctx, cart, variant, int32(1+i%2), &holdfast.CallOpts{IdempotencyKey: fmt.Sprint(cell, cart, variant, carts), Wait: 10 * time.Second})
			pgtest.Must(w.t, err)
			if r.Status != requests.Done && r.Reason != requests.OutOfStock {
				w.t.Fatalf("%s is %s %s", cart, r.Status, r.Reason)
			}
		}
		switch i % 3 {
		case 0:
			_, err := shop.Remove(ctx, cart, "", holdfast.ReleaseReason("abandoned"), nil)
			pgtest.Must(w.t, err)
		case 1:
			_, err := shop.Checkout(ctx, cart, nil)
			if !errors.Is(err, inventory.ErrCartEmpty) {
				pgtest.Must(w.t, err)
			}
		}
	}
}

// A tenant moves while callers add, and back. Nothing accepted is lost, and each
// key answers as before.
func TestMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill("eu", 30)
	at := "eu"
	for _, to := range []string{"us", "eu", "us"} {
		ctx, stop := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		accepted := make([]map[string]uuid.UUID, 4)
		for caller := range accepted {
			accepted[caller] = map[string]uuid.UUID{}
			callers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					key := fmt.Sprint(to, "-", caller, "-", n)
					r, err := w.in(at).Add(ctx, key, "normal", 1, &holdfast.CallOpts{IdempotencyKey: key})
					switch {
					case err == nil:
						accepted[caller][key] = r.RequestID
					case errors.Is(err, holdfast.ErrTenantMoving):
						return // the next call would look for the tenant
					case errors.Is(err, holdfast.ErrOverloaded): // the first use of its key has left already
					case ctx.Err() == nil:
						t.Errorf("%s: %v", key, err)
					}
					_ = sleep.For(ctx, 10*time.Millisecond)
				}
			})
		}
		report, err := w.move(to, cells.MoveConfig{Linger: calledLinger})
		stop()
		callers.Wait()
		pgtest.Must(t, err)
		t.Logf("%+v", report)
		at = to
		count := 0
		for _, own := range accepted {
			for key, id := range own {
				again, err := w.in(at).Add(t.Context(), key, "normal", 1, &holdfast.CallOpts{IdempotencyKey: key, Wait: 10 * time.Second})
				if err != nil || again.RequestID != id {
					t.Errorf("%s: %s, %v in the new cell, want the request %s", key, again.RequestID, err, id)
				}
				count++
			}
		}
		if count == 0 {
			t.Error("nothing was accepted during the move")
		}
		w.check(at)
		for _, c := range w.cells {
			keys := tenants.NewAuthenticator(c.Pool, tenants.Config{CacheFor: -1})
			if _, err := keys.Authenticate(t.Context(), w.key); (err == nil) != (c.Name == at) {
				t.Errorf("the key in %s: %v", c.Name, err)
			}
		}
	}
}

// steps are after what a move can be interrupted.
var steps = []string{"announced", "sequences raised", "round", "copied", "fenced", "moving", "closed", "gone", "before active", "switched", "deleted", "cleaned"}

// A move that ends after any of its steps is finished by the same call. Until
// then the tenant is active in one cell at most, and both are as verify wants
// them.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill("eu", 6)
	at, to := "eu", "us"
	for _, last := range steps {
		interrupted := errors.New("interrupted after: " + last)
		reached := false
		_, err := w.move(to, cells.MoveConfig{After: func(step string) error {
			if step == last && !reached {
				reached = true
				return interrupted
			}
			return nil
		}})
		if !reached || !errors.Is(err, interrupted) {
			t.Fatalf("%s: %v, want the move interrupted", last, err)
		}
		active := int64(0)
		for _, c := range w.cells {
			active += pgtest.Int(t, c.Pool, `SELECT count(*) FROM tenant_state WHERE state = 'active'`)
			report, err := verify.Run(t.Context(), c.Pool, verify.Config{})
			pgtest.Must(t, err)
			if !report.OK {
				t.Errorf("%s: cell %s: %s", last, c.Name, report.Summary())
			}
		}
		if active > 1 {
			t.Errorf("%s: the tenant is active in %d cells", last, active)
		}
		if last != "cleaned" {
			if _, err := w.move(to, cells.MoveConfig{}); err != nil {
				t.Fatalf("%s: %v", last, err)
			}
		}
		at, to = to, at
		w.check(at)
		w.fill(at, 3)
	}
}

// request makes many requests for one unit each, of which every other one is
// removed again.
func (w *world) request(shop *holdfast.Tenant, requested int) {
	w.t.Helper()
	ctx := w.t.Context()
	var filling errgroup.Group
	for caller := range 50 {
		filling.Go(func() error {
			for n := range requested / 50 {
				cart := fmt.Sprint(caller, "-", n)
				_, err := shop.Add(ctx, cart, "shirt", 1, &holdfast.CallOpts{IdempotencyKey: cart, Wait: 10 * time.Second})
				if err == nil && n%2 == 0 {
					_, err = shop.Remove(ctx, cart, "shirt", "abandoned", nil)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", cart, err)
				}
			}
			return nil
		})
	}
	pgtest.Must(w.t, filling.Wait())
}

// A tenant with a long history moves while 30 calls per second are made, and as many
// of its neighbour. HOLDFAST_TEST_LONG=1 makes the history 200,000 requests.
func TestMoveHistory(t *testing.T) {
	t.Parallel()
	requested := 2000
	if os.Getenv("HOLDFAST_TEST_LONG") != "" {
		requested = 200_000
	}
	w := newWorld(t)
	ctx, shop := t.Context(), w.in("eu")
	neighbour, err := w.clients["eu"].Tenant(ctx, "neighbour")
	pgtest.Must(t, err)
	for _, owner := range []*holdfast.Tenant{shop, neighbour} {
		_, err := owner.SetStock(ctx, "shirt", holdfast.StockPatch{Stock: new(int64(10 * requested))}, nil)
		pgtest.Must(t, err)
	}
	w.request(shop, requested)
	w.check("eu")

	calling, stop := context.WithCancel(ctx)
	var callers sync.WaitGroup
	accepted := map[string]uuid.UUID{}
	callers.Go(func() {
		door := holdfast.Cells(w.clients)
		for n := 0; calling.Err() == nil; n++ {
			key := fmt.Sprint("during-", n)
			r, err := holdfast.Outcome{}, error(nil)
			if shop, err = door.Tenant(ctx, "shop"); err == nil {
				r, err = shop.Add(ctx, key, "shirt", 1, &holdfast.CallOpts{IdempotencyKey: key})
			}
			switch {
			case err == nil:
				accepted[key] = r.RequestID
			case !errors.Is(err, holdfast.ErrTenantMoving):
				t.Errorf("%s: %v", key, err)
			}
			_ = sleep.For(calling, time.Second/30)
		}
	})
	slowest := time.Duration(0)
	callers.Go(func() {
		for n := 0; calling.Err() == nil; n++ {
			began := time.Now()
			if _, err := neighbour.Add(ctx, fmt.Sprint(n), "shirt", 1, &holdfast.CallOpts{Wait: 10 * time.Second}); err != nil {
				t.Errorf("the neighbour: %v", err)
			}
			slowest = max(slowest, time.Since(began))
			_ = sleep.For(calling, time.Second/30)
		}
	})
	began := time.Now()
	report, err := w.move("us", cells.MoveConfig{Linger: calledLinger})
	stop()
	callers.Wait()
	pgtest.Must(t, err)
	t.Logf("%d rows in %s, %d of them copied, pause %.3f s; %d calls accepted meanwhile; the slowest call of the neighbour took %s",
		report.Rows, time.Since(began), report.Copied, report.PauseSeconds, len(accepted), slowest)
	for key, id := range accepted {
		again, err := w.in("us").Add(ctx, key, "shirt", 1, &holdfast.CallOpts{IdempotencyKey: key, Wait: 10 * time.Second})
		if err != nil || again.RequestID != id {
			t.Errorf("%s: %s, %v in the new cell, want the request %s", key, again.RequestID, err, id)
		}
	}
	w.check("us")
}

// What is deleted and changed between two rounds of a move, and what a purge of the
// new cell has deleted there, is as in the old cell at the end.
func TestMoveRepairs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill("eu", 9)
	ctx, shop := t.Context(), w.in("eu")
	parts := []requests.KitPart{{VariantID: "hot", Quantity: 1}, {VariantID: "normal", Quantity: 2}}
	for _, kit := range []string{"stays", "goes"} {
		_, err := shop.SetKit(ctx, kit, parts, nil)
		pgtest.Must(t, err)
	}
	recorded := pgtest.Int(t, w.cells[0].Pool, `SELECT count(*) FROM audit_log`)
	changed := false
	report, err := w.move("us", cells.MoveConfig{After: func(step string) error {
		if step != "round" || changed {
			return nil
		}
		changed = true
		pgtest.Must(t, shop.DeleteKit(ctx, "goes", nil))
		_, err := shop.SetKit(ctx, "stays", parts[:1], nil)
		pgtest.Exec(t, w.cells[1].Pool, `DELETE FROM audit_log WHERE audit_id IN (SELECT audit_id FROM audit_log ORDER BY audit_id LIMIT 5)`)
		pgtest.Exec(t, w.cells[1].Pool, `UPDATE inventory_stocks SET stock = stock + 1`)
		return err
	}})
	pgtest.Must(t, err)
	w.check("us")
	shop = w.in("us")
	if kit, err := shop.Kit(ctx, "stays"); err != nil || len(kit.Parts) != 1 {
		t.Errorf("the kit that was changed: %+v, %v", kit, err)
	}
	if _, err := shop.Kit(ctx, "goes"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("the kit that was deleted: %v", err)
	}
	if n := pgtest.Int(t, w.cells[1].Pool, `SELECT count(*) FROM audit_log`); n != recorded+2 {
		t.Errorf("%d rows of the record, want %d", n, recorded+2)
	}
	if report.Rows == 0 || report.PauseSeconds <= 0 {
		t.Errorf("%+v", report)
	}
}

// A move deletes a request of the new cell whose idempotency key belongs to another
// one in the old cell: one that a call made there after the tenant had left it, and
// one that was copied and then purged, whose key was used again.
func TestMovePastOtherRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill("eu", 9)
	const used, late = "eucart-0hot9", "eucart-3hot9"
	pgtest.Exec(t, w.cells[1].Pool, `INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, idempotency_key, fingerprint)
		VALUES ($1, gen_random_uuid(), 'normal', 'cart', 'hot', 1, $2, '')`, w.tenant, late)
	again := false
	_, err := w.move("us", cells.MoveConfig{After: func(step string) error {
		if step != "round" || again {
			return nil
		}
		again = true
		pgtest.Exec(t, w.cells[0].Pool, `INSERT INTO purge_mark (purged_before) VALUES (clock_timestamp())
			ON CONFLICT (mark) DO UPDATE SET purged_before = excluded.purged_before`)
		pgtest.Exec(t, w.cells[0].Pool, `DELETE FROM reservation_requests WHERE idempotency_key = $1`, used)
		_, err := w.in("eu").Add(t.Context(), "cart-again", "normal", 1, &holdfast.CallOpts{IdempotencyKey: used, Wait: time.Minute})
		return err
	}})
	pgtest.Must(t, err)
	for key, cart := range map[string]string{used: "cart-again", late: "cart-3"} {
		if n := pgtest.Int(t, w.cells[1].Pool, `SELECT count(*) FROM reservation_requests WHERE idempotency_key = $1 AND cart_id = $2`, key, cart); n != 1 {
			t.Errorf("%d requests of %s with the key %s, want 1", n, cart, key)
		}
	}
	w.check("us")
}
