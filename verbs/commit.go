package verbs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/fair"
	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// patience is how long a group waits for each lock.
type patience int

const (
	quick   patience = iota // 100 ms; what is for a locked stock goes to the slow line
	patient                 // a second; what is for a locked stock is made alone
)

// part is a group, or a part of one, that is to be committed.
type part struct {
	members []*member
	// free has stocks that other transactions have locked left out instead of waited for.
	free bool
}

// commit commits the calls of a group, in as few transactions as it takes, and answers all of them.
func (g *Groups) commit(ctx context.Context, group []*member, patience patience) {
	members := make([]*member, 0, len(group))
	for _, m := range group {
		if m.state.CompareAndSwap(waits, sent) {
			members = append(members, m)
		}
	}
	for todo := []part{{members: members}}; len(todo) > 0; {
		p := todo[0]
		todo = todo[1:]
		if len(p.members) == 0 {
			continue
		}
		t := &transaction{groups: g, members: p.members, patience: patience, free: p.free}
		err := t.run(ctx)
		switch {
		case err == nil:
			todo = append(todo, part{members: t.later})
		case t.unknown(err):
			t.answerUnknown(err)
		case t.broken:
			answerAlone(ctx, p.members)
		case !p.free && pgerr.Code(err) == "55P03": // lock_not_available
			todo = append([]part{{p.members, true}}, todo...)
		case len(p.members) > 1:
			half := len(p.members) / 2
			todo = append([]part{{p.members[:half], p.free}, {p.members[half:], p.free}}, todo...)
		default:
			answerAlone(ctx, p.members)
		}
	}
}

func answerAlone(ctx context.Context, members []*member) {
	telemetry.VerbsAlone(ctx, len(members))
	for _, m := range members {
		m.answer(Result{}, ErrAlone)
	}
}

// slowDown has the members wait in the slow line.
func (g *Groups) slowDown(ctx context.Context, members []*member) {
	for _, m := range members {
		m.state.Store(waits)
		if g.slow.Join(m.call.TenantID, m) != fair.Joined {
			answerAlone(ctx, []*member{m})
		}
	}
}

// transaction is the transaction of some calls.
type transaction struct {
	groups   *Groups
	members  []*member
	patience patience
	free     bool
	group    *inventory.Group

	results    []Result
	errs       []error
	left       []bool    // calls that are left to another transaction:
	later      []*member // the next one
	alone      []*member // one of their own
	slow       []*member // one of the slow line
	broken     bool      // the connection, or the time for the transaction
	committing bool
}

// unknown reports that the error is of a commit, and does not say whether it took effect.
func (t *transaction) unknown(err error) bool {
	return t.committing && pgerr.Code(err) == "" && !pgerr.IsRetryable(err) && !errors.Is(err, pgx.ErrTxCommitRollback)
}

// answerUnknown has those make their call again for which that is harmless, because they have a key.
func (t *transaction) answerUnknown(err error) {
	for _, m := range t.members {
		if m.call.Key != "" {
			m.answer(Result{}, ErrAlone)
		} else {
			m.answer(Result{}, fmt.Errorf("%w: %w", requests.ErrOutcomeUnknown, err))
		}
	}
}

// run is the transaction. If it has no error, the calls are answered, but for those that are to be made later. A panic is
// an error.
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
	answerAlone(ctx, t.alone)
	t.groups.slowDown(ctx, t.slow)
	telemetry.VerbGroup(ctx, len(t.members)-len(t.alone)-len(t.later)-len(t.slow))
	for i, m := range t.members {
		if !t.left[i] {
			m.answer(t.results[i], t.errs[i])
		}
	}
	return nil
}

const lockTimeoutSQL = `SELECT set_config('lock_timeout', $1, true)`

// lockTimeouts is how long a group waits for each lock.
var lockTimeouts = map[patience]string{quick: "100ms", patient: "1s"}

// holdsMax is how many holds a cart may have for its calls to be made in a group.
const holdsMax = 100

func (t *transaction) runOn(ctx context.Context, conn *pgxpool.Conn) error {
	n := len(t.members)
	t.results, t.errs, t.left = make([]Result, n), make([]error, n), make([]bool, n)
	calls := make([]inventory.Call, n)
	for i, m := range t.members {
		calls[i] = m.call.Call
	}
	t.group = inventory.NewGroup(calls)

	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	b.Queue(lockTimeoutSQL, lockTimeouts[t.patience])
	pending := t.queuePending(b)
	t.group.QueueNeeds(b, holdsMax+1)
	begun := conn.SendBatch(ctx, b)
	tx := begun.Tx()
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
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
	for i, m := range t.members {
		k := key{m.call.TenantID, m.call.Key}
		switch {
		case m.call.Key != "" && keys[k], t.group.Meets(i):
			t.leave(i, &t.later)
		case pending[i] && m.call.Action == inventory.CheckoutCart:
			t.group.LeaveOut(i)
			t.errs[i] = requests.ErrRequestsPending
		case pending[i], t.group.Holds(i) > holdsMax:
			t.leave(i, &t.alone)
		case t.patience == quick && t.groups.blocked.any(t.group.Variants(i)):
			t.leave(i, &t.slow)
		}
		if m.call.Key != "" {
			keys[k] = true
		}
	}
}

// leave leaves a call to another transaction.
func (t *transaction) leave(place int, to *[]*member) {
	t.group.LeaveOut(place)
	t.left[place] = true
	*to = append(*to, t.members[place])
}

// lock locks the stocks and then the holds, and reads which calls were answered before.
func (t *transaction) lock(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	t.group.QueueStocks(b, !t.free)
	if t.free {
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("lock stocks: %w", err)
		}
		for i := range t.members {
			unlocked := t.group.Unlocked(i)
			switch {
			case len(unlocked) == 0 || t.left[i] || t.errs[i] != nil:
			case t.patience == quick:
				t.groups.blocked.note(unlocked)
				t.leave(i, &t.slow)
			default:
				t.leave(i, &t.alone)
			}
		}
		b = &pgx.Batch{}
	}
	t.group.QueueHolds(b)
	t.queueKept(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("lock stocks and holds: %w", err)
	}
	return nil
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
	if len(keys) > 0 {
		requests.QueueFence(b, keys)
	}
	t.group.QueueWrites(b)
	if len(kept) > 0 {
		tenants.QueueKeep(b, kept)
	}
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("write what was decided: %w", err)
	}
	return nil
}
