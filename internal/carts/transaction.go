package carts

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tenants"
)

// transaction is the transaction of a part.
type transaction struct {
	part
	groups   *Groups
	lockWait lockWait
	group    *inventory.GroupCommit

	results   []Result
	errs      []error
	deferred  []bool                      // calls that are deferred to another transaction:
	requeued  []*member                   // that of a later group
	ungrouped []*member                   // a separate one for each
	contended []*member                   // one of the contended queue
	byStock   map[inventory.Ref][]*member // the next one, which waits for the stock

	claiming   bool // idempotency keys
	broken     bool // the connection is closed, or the transaction has timed out
	committing bool
}

// run runs the transaction. Without an error, it has answered all calls except
// the deferred ones; see forwardDeferred. It returns a panic as an error.
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
		if !t.deferred[i] {
			made++
			m.Answer(t.results[i], t.errs[i])
		}
	}
	telemetry.VerbGroup(ctx, made)
	return nil
}

const lockTimeoutSQL = `SELECT set_config('lock_timeout', $1, true)`

const (
	// holdsMax is how many holds a cart may have for its calls to be made in a
	// group.
	holdsMax = 100
	// groupHoldsMax is about how many holds the calls of one transaction work
	// on.
	groupHoldsMax = 2000
)

func (t *transaction) runOn(ctx context.Context, conn *pgxpool.Conn) error {
	n := len(t.members)
	t.results, t.errs, t.deferred = make([]Result, n), make([]error, n), make([]bool, n)
	calls := make([]inventory.Call, n)
	for i, m := range t.members {
		calls[i] = m.call.Call
	}
	t.group = inventory.NewGroupCommit(calls)

	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	b.Queue(lockTimeoutSQL, string(t.lockWait))
	pending, ofCarts := t.queuePending(b)
	t.group.QueueFindHolds(b, holdsMax+1)
	begun := conn.SendBatch(ctx, b)
	tx := begun.Tx()
	defer func() { _ = tx.Rollback(ctx) }()
	if err := begun.Close(); err != nil {
		return fmt.Errorf("read the holds of the calls: %w", err)
	}
	hasPending := make([]bool, n)
	for _, i := range *pending {
		hasPending[ofCarts[i]] = true
	}
	t.classify(hasPending)

	if err := t.lock(ctx, tx); err != nil {
		return err
	}
	if err := t.write(ctx, tx); err != nil {
		return err
	}
	t.committing = true
	return tx.Commit(ctx)
}

// queuePending adds to b what reads which carts have undecided requests, or, if they
// are to be removed, requests in line: the
// indexes of members, by the indexes that pending has once the batch is sent.
func (t *transaction) queuePending(b *pgx.Batch) (pending *[]int, members []int) {
	var carts []requestrows.CartVariant
	var removes []bool
	for i, m := range t.members {
		if c := &m.call; c.Action == inventory.CheckoutCart || c.Action == inventory.ReleaseCart {
			carts = append(carts, requestrows.CartVariant{TenantID: c.TenantID, CartID: c.CartID, VariantID: c.VariantID})
			removes = append(removes, c.Action == inventory.ReleaseCart)
			members = append(members, i)
		}
	}
	if len(carts) == 0 {
		return new([]int), nil
	}
	return requestrows.QueuePending(b, carts, removes), members
}

// classify excludes the calls that are not decided in this transaction.
func (t *transaction) classify(pending []bool) {
	keys := make(map[requestrows.Key]bool)
	var requeued []int // are deferred once all are classified, so that no call overtakes one that it overlaps
	holds := 0
	for i, m := range t.members {
		k := m.call.keyOf()
		switch {
		case m.call.Key != "" && keys[k], t.group.Overlaps(i), holds > groupHoldsMax:
			requeued = append(requeued, i)
		case pending[i] && m.call.Action == inventory.CheckoutCart:
			t.group.Members[i].Excluded = true
			t.errs[i] = requestrows.ErrRequestsPending
		case pending[i], t.group.Members[i].HoldCount() > holdsMax:
			t.deferTo(i, &t.ungrouped)
		case t.lockWait == shortWait && t.anyLocked(t.group.Members[i].Variants()):
			t.deferTo(i, &t.contended)
		default:
			holds += t.group.Members[i].HoldCount()
		}
		if m.call.Key != "" {
			keys[k] = true
		}
	}
	for _, i := range requeued {
		t.deferTo(i, &t.requeued)
	}
}

// anyLocked reports whether one of the stocks was found locked within the last
// second.
func (t *transaction) anyLocked(stocks []inventory.Ref) bool {
	now := t.groups.now()
	return slices.ContainsFunc(stocks, func(stock inventory.Ref) bool { return t.groups.locked.IsLocked(now, stock) })
}

// deferTo defers a call to another transaction.
func (t *transaction) deferTo(place int, to *[]*member) {
	t.group.Members[place].Excluded = true
	t.deferred[place] = true
	*to = append(*to, t.members[place])
}

// lock locks the stocks and then the holds, and reads which calls were answered
// before. It waits for a stock only while it has no other stock locked, and for
// no hold. Otherwise one row that another transaction keeps locked would keep
// stocks locked too.
func (t *transaction) lock(ctx context.Context, tx pgx.Tx) error {
	needs := t.group.AllVariants()
	if t.wait != nil && !slices.Contains(needs, *t.wait) {
		t.wait = nil // its holds have ended meanwhile
	}
	first := t.wait == nil
	if first && len(needs) == 1 {
		t.wait = &needs[0]
	}
	b := &pgx.Batch{}
	t.group.QueueLockStocks(b, t.wait)
	if len(needs) > 1 { // a single stock is locked, or the batch fails
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("lock stocks: %w", err)
		}
		t.classifyUnlocked(first)
		b = &pgx.Batch{}
	}
	t.group.QueueLockHolds(b)
	earlier := t.queueEarlier(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("lock holds: %w", err)
	}
	t.replay(earlier)
	t.deferLockedHolds()
	return nil
}

// deferLockedHolds defers the calls of which another transaction has locked a
// hold. The transaction does not wait for it, because it has locked the stocks.
func (t *transaction) deferLockedHolds() {
	for i := range t.members {
		switch {
		case t.deferred[i] || t.errs[i] != nil || t.results[i].Replayed != nil || !t.group.Members[i].LockedHold:
		case t.lockWait == shortWait:
			t.deferTo(i, &t.contended)
		default:
			t.deferTo(i, &t.ungrouped)
		}
	}
}

// classifyUnlocked defers the calls whose stocks are not all locked. first
// means that the transaction has not waited for a stock.
func (t *transaction) classifyUnlocked(first bool) {
	for i, m := range t.members {
		unlocked := slices.DeleteFunc(t.group.Members[i].Variants(), t.group.HasLocked)
		if len(unlocked) == 0 || t.deferred[i] || t.errs[i] != nil {
			continue
		}
		switch {
		case first:
			if t.byStock == nil {
				t.byStock = make(map[inventory.Ref][]*member)
			}
			t.group.Members[i].Excluded = true
			t.deferred[i] = true
			t.byStock[unlocked[0]] = append(t.byStock[unlocked[0]], m)
		case t.lockWait == shortWait: // several of its stocks were locked by other transactions
			t.deferTo(i, &t.contended)
		default:
			t.deferTo(i, &t.ungrouped)
		}
	}
}

// earlier are the first uses of the calls' idempotency keys, once they are
// read: the answers of calls, and the keys that belong to requests. Their
// indexes are those of members.
type earlier struct {
	members []int
	answers *[]tenants.StoredAnswer
	taken   *[]int
}

// queueEarlier adds to b what reads, under the locks, the first uses of the
// calls' keys.
func (t *transaction) queueEarlier(b *pgx.Batch) (e earlier) {
	var calls []tenants.KeyedCall
	var keys []requestrows.Key
	for i, m := range t.members {
		if m.call.Key != "" && !t.deferred[i] {
			calls = append(calls, m.call.keyed())
			keys = append(keys, m.call.keyOf())
			e.members = append(e.members, i)
		}
	}
	if len(calls) == 0 {
		return earlier{answers: new([]tenants.StoredAnswer), taken: new([]int)}
	}
	e.answers, e.taken = tenants.QueueReadAnswers(b, calls), requestrows.QueueTaken(b, keys)
	return e
}

// replay excludes the calls that were made before, and those whose keys belong
// to others.
func (t *transaction) replay(e earlier) {
	for _, stored := range *e.answers {
		i := e.members[stored.Index]
		t.group.Members[i].Excluded = true
		t.errs[i] = stored.Err
		if stored.Err == nil {
			t.results[i].Replayed = &stored.Answer
		}
	}
	for _, index := range *e.taken {
		i := e.members[index]
		t.group.Members[i].Excluded = true
		t.errs[i] = tenants.ErrKeyReused
	}
}

// write decides the calls and writes the decisions.
func (t *transaction) write(ctx context.Context, tx pgx.Tx) error {
	var answered []tenants.AnsweredCall
	var keys []requestrows.Key
	if err := t.group.ReadAllotmentsTx(ctx, tx); err != nil {
		return err
	}
	t.group.Decide()
	for i := range t.members {
		r := t.group.Members[i].Result
		if t.deferred[i] || t.errs[i] != nil || t.results[i].Replayed != nil {
			continue
		}
		m := t.members[i]
		t.results[i].Result, t.errs[i] = r, r.Err
		if m.call.Key == "" || r.Err != nil {
			continue
		}
		answer, err := m.call.Answer(r)
		if err != nil {
			return fmt.Errorf("make the answer of a call: %w", err)
		}
		answered = append(answered, tenants.AnsweredCall{KeyedCall: m.call.keyed(), Answer: answer})
		keys = append(keys, m.call.keyOf())
	}
	b := &pgx.Batch{}
	if len(answered) > 0 {
		t.claiming = true
		b.Queue(claimTimeoutSQL)
		tenants.QueueStoreAnswers(b, answered)
		requestrows.QueueReserveKeys(b, keys)
		b.Queue(lockTimeoutSQL, string(t.lockWait)).Exec(func(pgconn.CommandTag) error {
			t.claiming = false
			return nil
		})
	}
	t.group.QueueWrites(b)
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("write the decisions: %w", err)
	}
	return nil
}

// claimTimeoutSQL bounds the wait for an idempotency key that another call is
// using, because the group keeps its locks during the wait.
const claimTimeoutSQL = `SELECT set_config('lock_timeout', '10ms', true)`
