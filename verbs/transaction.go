package verbs

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// transaction is the transaction of some calls.
type transaction struct {
	part
	groups   *Groups
	patience patience
	group    *inventory.Group

	results []Result
	errs    []error
	left    []bool                      // calls that are left to another transaction:
	later   []*member                   // one of a later group
	alone   []*member                   // one of their own
	slow    []*member                   // one of the slow line
	missing map[inventory.Ref][]*member // the next one, which waits for that stock

	claiming   bool // idempotency keys
	broken     bool // the connection, or the time for the transaction
	committing bool
}

// run is the transaction. If it has no error, the calls are answered, but for those that were left; see rest. A panic is an
// error.
func (t *transaction) run(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("commit a group of %d calls: panic: %v\n%s", len(t.members), p, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, t.groups.config.AttemptTimeout)
	defer cancel()
	conn, err := t.groups.db.Acquire(ctx)
	if err != nil {
		t.broken = true
		return err
	}
	defer conn.Release()
	if err := t.runOn(ctx, conn); err != nil {
		t.broken = conn.Conn().IsClosed() || ctx.Err() != nil
		return err
	}
	made := 0
	for i, m := range t.members {
		if !t.left[i] {
			made++
			m.answer(t.results[i], t.errs[i])
		}
	}
	telemetry.VerbGroup(ctx, made)
	return nil
}

const lockTimeoutSQL = `SELECT set_config('lock_timeout', $1, true)`

// lockTimeouts is how long a group waits for each lock.
var lockTimeouts = map[patience]string{quick: "100ms", patient: "1s"}

const (
	// holdsMax is how many holds a cart may have for its calls to be made in a group.
	holdsMax = 100
	// groupHoldsMax is about how many holds the calls of one transaction are about.
	groupHoldsMax = 2000
)

func (t *transaction) runOn(ctx context.Context, conn *pgxpool.Conn) error {
	n := len(t.members)
	t.results, t.errs, t.left = make([]Result, n), make([]error, n), make([]bool, n)
	calls := make([]inventory.Call, n)
	for i, m := range t.members {
		calls[i] = m.call.Call
	}
	t.group = inventory.NewGroup(calls)

	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	b.Queue(lockTimeoutSQL, lockTimeouts[t.patience])
	pending := t.queuePending(b)
	t.group.QueueNeeds(b, holdsMax+1)
	begun := conn.SendBatch(ctx, b)
	tx := begun.Tx()
	defer func() { _ = tx.Rollback(ctx) }()
	if err := begun.Close(); err != nil {
		return fmt.Errorf("read what the calls are about: %w", err)
	}
	t.sort(pending)

	if err := t.lock(ctx, tx); err != nil {
		return err
	}
	if err := t.write(ctx, tx); err != nil {
		return err
	}
	t.committing = true
	return tx.Commit(ctx)
}

// queuePending adds to b what reads which carts have requests that are not decided.
func (t *transaction) queuePending(b *pgx.Batch) (pending []bool) {
	pending = make([]bool, len(t.members))
	var carts []requests.CartVariant
	var places []int
	for i, m := range t.members {
		if c := &m.call; c.Action == inventory.CheckoutCart || c.Action == inventory.ReleaseCart {
			carts = append(carts, requests.CartVariant{TenantID: c.TenantID, CartID: c.CartID, VariantID: c.VariantID})
			places = append(places, i)
		}
	}
	if len(carts) > 0 {
		requests.QueuePending(b, carts, func(place int) { pending[places[place]] = true })
	}
	return pending
}

// sort leaves out the calls that are not decided in this transaction.
func (t *transaction) sort(pending []bool) {
	type key struct {
		tenant uuid.UUID
		key    string
	}
	keys := make(map[key]bool)
	var later []int // are left once all are sorted, so that no call overtakes one that it meets
	holds := 0
	for i, m := range t.members {
		k := key{m.call.TenantID, m.call.Key}
		switch {
		case m.call.Key != "" && keys[k], t.group.Meets(i), holds > groupHoldsMax:
			later = append(later, i)
		case pending[i] && m.call.Action == inventory.CheckoutCart:
			t.group.LeaveOut(i)
			t.errs[i] = requests.ErrRequestsPending
		case pending[i], t.group.Holds(i) > holdsMax:
			t.leave(i, &t.alone)
		case t.patience == quick && t.groups.blocked.any(t.group.Variants(i)):
			t.leave(i, &t.slow)
		default:
			holds += t.group.Holds(i)
		}
		if m.call.Key != "" {
			keys[k] = true
		}
	}
	for _, i := range later {
		t.leave(i, &t.later)
	}
}

// leave leaves a call to another transaction.
func (t *transaction) leave(place int, to *[]*member) {
	t.group.LeaveOut(place)
	t.left[place] = true
	*to = append(*to, t.members[place])
}

// lock locks the stocks and then the holds, and reads which calls were answered before. It waits for a stock only while no
// other one is locked: else a stock that another transaction keeps locked would keep the others locked too.
func (t *transaction) lock(ctx context.Context, tx pgx.Tx) error {
	needs := t.group.Needs()
	first := t.wait == nil
	if first && len(needs) == 1 {
		t.wait = &needs[0]
	}
	b := &pgx.Batch{}
	t.group.QueueStocks(b, t.wait)
	if len(needs) > 1 { // else all of it is locked, or none
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("lock stocks: %w", err)
		}
		t.sortMissing(first)
		b = &pgx.Batch{}
	}
	t.group.QueueHolds(b)
	t.queueKept(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("lock holds: %w", err)
	}
	return nil
}

// sortMissing leaves out the calls whose stocks are not all locked. first says that none was waited for yet.
func (t *transaction) sortMissing(first bool) {
	for i, m := range t.members {
		unlocked := t.group.Unlocked(i)
		if len(unlocked) == 0 || t.left[i] || t.errs[i] != nil {
			continue
		}
		switch {
		case first:
			if t.missing == nil {
				t.missing = make(map[inventory.Ref][]*member)
			}
			t.group.LeaveOut(i)
			t.left[i] = true
			t.missing[unlocked[0]] = append(t.missing[unlocked[0]], m)
		case t.patience == quick: // it has one of several stocks that are locked now and then
			t.leave(i, &t.slow)
		default:
			t.leave(i, &t.alone)
		}
	}
}

// queueKept adds to b what reads, under the locks, which calls were answered before, and whose keys belong to requests.
func (t *transaction) queueKept(b *pgx.Batch) {
	var calls []tenants.KeyedCall
	var keys []requests.Key
	var places []int
	for i, m := range t.members {
		if m.call.Key != "" && !t.left[i] {
			calls = append(calls, m.call.keyed())
			keys = append(keys, requests.Key{TenantID: m.call.TenantID, Key: m.call.Key})
			places = append(places, i)
		}
	}
	if len(calls) == 0 {
		return
	}
	tenants.QueueKept(b, calls, func(place int, a tenants.Answer, err error) {
		i := places[place]
		t.group.LeaveOut(i)
		if t.errs[i] = err; err == nil {
			t.results[i].Kept = &a
		}
	})
	requests.QueueTaken(b, keys, func(place int) {
		i := places[place]
		t.group.LeaveOut(i)
		t.errs[i] = tenants.ErrKeyReused
	})
}

// write decides the calls and writes what was decided.
func (t *transaction) write(ctx context.Context, tx pgx.Tx) error {
	var kept []tenants.KeptCall
	var keys []requests.Key
	for i, r := range t.group.Decide() {
		if t.left[i] || t.errs[i] != nil || t.results[i].Kept != nil {
			continue
		}
		m := t.members[i]
		t.results[i].Result, t.errs[i] = r, r.Err
		if m.call.Key == "" || r.Err != nil {
			continue
		}
		answer, err := m.call.Answer(r)
		if err != nil {
			return fmt.Errorf("make an answer: %w", err)
		}
		kept = append(kept, tenants.KeptCall{KeyedCall: m.call.keyed(), Answer: answer})
		keys = append(keys, requests.Key{TenantID: m.call.TenantID, Key: m.call.Key})
	}
	b := &pgx.Batch{}
	if len(kept) > 0 {
		t.claiming = true
		b.Queue(claimTimeoutSQL)
		tenants.QueueKeep(b, kept)
		requests.QueueFence(b, keys)
		b.Queue(lockTimeoutSQL, lockTimeouts[t.patience]).Exec(func(pgconn.CommandTag) error {
			t.claiming = false
			return nil
		})
	}
	t.group.QueueWrites(b)
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("write what was decided: %w", err)
	}
	return nil
}

// claimTimeoutSQL has a group not wait for an idempotency key that is in use, with all that it has locked.
const claimTimeoutSQL = `SELECT set_config('lock_timeout', '10ms', true)`
