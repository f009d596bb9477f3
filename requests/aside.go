package requests

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/pgerr"
)

// aside is where groups go that wait for a lock: in all likelihood an idempotency key of one of them is in use by a call
// that finishes at once and takes its time. What such a call holds up is found by halves beside the committers, and its key
// is known for a while, so that it holds nobody else up.
//
// Locks are waited for as long as the database's lock_timeout says, which the intake's connections ought to set.
type aside struct {
	busy    chan struct{} // whoever goes through a group beside the committers
	hands   chan struct{} // whoever admits a part of such a group, with a connection each
	running sync.WaitGroup

	mu   sync.Mutex
	held map[Key]time.Time // until when a key is taken for held
}

const (
	// heldFor is how long a held key is refused without being tried again.
	heldFor = time.Second
	// heldMax is how many held keys are known.
	heldMax = 1000
	// handsMax is how many parts of groups that wait for locks are admitted at one time, by all who go through one: the
	// connections are for those who wait for none.
	handsMax = 2
)

func newAside() *aside {
	return &aside{busy: make(chan struct{}, 1), hands: make(chan struct{}, handsMax), held: make(map[Key]time.Time)}
}

// isKeyLocked reports whether a lock was not granted in time that another transaction has on a row of the same key, or of
// the same request.
func isKeyLocked(err error) bool { return pgerr.IsRowLocked(err, "reservation_requests") }

// remember notes on the group that nobody knows the fate of an attempt, and says what came of it: as long as no later
// attempt gets an answer, be it only because it waits for that one to end, that is unknown still.
func remember(group []*member, err error) error {
	outage := pgerr.IsOutage(err)
	if outage && !pgerr.IsRetryable(err) {
		for _, m := range group {
			m.unknown = err
		}
	}
	if unknown := group[0].unknown; unknown != nil && (outage || pgerr.IsRetryable(err)) {
		return unknown
	}
	return err
}

// setAside goes through a group that waits for a lock: beside the committers, or where somebody is at that already, before
// the committer goes on.
func (in *Intake) setAside(ctx context.Context, group []*member) {
	select {
	case in.aside.busy <- struct{}{}:
		in.aside.running.Go(func() {
			defer func() { <-in.aside.busy }()
			in.halve(ctx, group)
		})
	default:
		in.halve(ctx, group)
	}
}

// halve admits the two halves of a group that waits for a lock, then the halves of those that wait still, and so on, within
// one CommitTimeout, and refuses who is left alone.
func (in *Intake) halve(ctx context.Context, group []*member) {
	ctx, cancel := context.WithTimeout(ctx, in.config.CommitTimeout)
	defer cancel()
	for waiting := [][]*member{group}; len(waiting) > 0; {
		var mu sync.Mutex
		var still [][]*member
		var round sync.WaitGroup
		for _, g := range waiting {
			for _, half := range [][]*member{g[:len(g)/2], g[len(g)/2:]} {
				round.Go(func() {
					select {
					case in.aside.hands <- struct{}{}:
						defer func() { <-in.aside.hands }()
					case <-ctx.Done(): // as the commit will find too
					}
					in.commit(ctx, half, func(_ context.Context, locked []*member) {
						mu.Lock()
						defer mu.Unlock()
						still = append(still, locked)
					})
				})
			}
		}
		round.Wait()
		waiting = still
	}
}

// failure is the answer of a member that was not admitted. A refusal is counted.
func (a *aside) failure(m *member, err error) error {
	if !pgerr.IsLockTimeout(err) {
		return fmt.Errorf("admit request %s: %w", m.submission.RequestID, err)
	}
	refused := &RefusedError{Why: WhyLocked, RetryAfter: retrySoonest}
	if isKeyLocked(err) && m.submission.IdempotencyKey != "" {
		refused.Why = WhyKey
		a.hold(m)
	}
	count(m.ctx, refused)
	return refused
}

// hold notes that another transaction holds the key of m.
func (a *aside) hold(m *member) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for key, until := range a.held {
		if now.After(until) {
			delete(a.held, key)
		}
	}
	if len(a.held) < heldMax {
		a.held[m.submission.key()] = now.Add(heldFor)
	}
}

// check refuses m if its key is known to be held.
func (a *aside) check(m *member) *RefusedError {
	if m.submission.IdempotencyKey == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.held) == 0 || time.Now().After(a.held[m.submission.key()]) {
		return nil
	}
	return &RefusedError{Why: WhyKey, RetryAfter: retrySoonest}
}
