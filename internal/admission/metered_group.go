package admission

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

// holdRequestsOf returns the submissions as hold requests, with the fields on
// which their admission depends.
func holdRequestsOf(group []requestrows.Submission) []inventory.HoldRequest {
	asks := make([]inventory.HoldRequest, len(group))
	for i := range group {
		s := &group[i]
		asks[i] = inventory.HoldRequest{
			TenantID: s.TenantID, RequestID: s.RequestID, CartID: s.CartID, VariantID: s.VariantID,
			Quantity: int64(s.Quantity), Replace: s.Kind == requests.Set,
		}
	}
	return asks
}

// metering counts the rates of a group and spends its tokens in the transaction
// that admits it. The round trip of the insert spends and counts. A few more
// undo the charges of members that are refused or were admitted before, and
// delete the rows of refused ones.
type metering struct {
	in      *Intake
	group   []*waiter
	asks    []inventory.HoldRequest
	guarded map[inventory.Ref]bool   // variants that require a token
	covered map[requestrows.Ref]bool // no token needed: the cart holds as much
	tokens  *tokens.Redemptions
	limiter *ratelimit.Batch
	began   time.Time
}

func (in *Intake) newMetering(group []*waiter, submissions []requestrows.Submission) (*metering, error) {
	items, presented := make([]ratelimit.Item, len(group)), make([]tokens.Presented, len(group))
	for i, w := range group {
		items[i], presented[i] = w.item, w.token
	}
	limiter, err := ratelimit.NewBatch(items)
	if err != nil {
		return nil, err
	}
	return &metering{
		in: in, group: group, asks: holdRequestsOf(submissions), covered: make(map[requestrows.Ref]bool),
		tokens: tokens.NewRedemptions(presented), limiter: limiter, began: time.Now(),
	}, nil
}

func (m *metering) queue(b *pgx.Batch) {
	m.guarded = inventory.QueueTokenRequired(b, append(slices.Clip(m.asks), asksOfLines(m.group)...))
	inventory.QueueCovered(b, m.asks, func(tenantID, requestID uuid.UUID) {
		m.covered[requestrows.Ref{TenantID: tenantID, RequestID: requestID}] = true
	})
	m.tokens.Queue(b) // tokens are locked before rates
	m.limiter.Queue(b)
}

// needsToken reports whether the submission is admitted only with a token.
func (m *metering) needsToken(s *requestrows.Submission) bool {
	if s.RetryOf != uuid.Nil {
		return false // the failed request has spent its token
	}
	if s.Lines != nil { // a token of one variant is not enough: it must be valid for all
		return slices.ContainsFunc(asksOf(s), func(ask inventory.HoldRequest) bool {
			return m.guarded[inventory.Ref{TenantID: ask.TenantID, VariantID: ask.VariantID}]
		})
	}
	return m.guarded[inventory.Ref{TenantID: s.TenantID, VariantID: s.VariantID}] && !m.covered[s.Ref()]
}

// asksOfLines returns the variants of the requests of several lines.
func asksOfLines(group []*waiter) (asks []inventory.HoldRequest) {
	for _, w := range group {
		if w.submission.Lines != nil {
			asks = append(asks, asksOf(&w.submission)...)
		}
	}
	return asks
}

func asksOf(s *requestrows.Submission) (asks []inventory.HoldRequest) {
	for i := range s.Lines.Items {
		for _, variant := range requestrows.Variants(&s.Lines.Items[i]) {
			asks = append(asks, inventory.HoldRequest{TenantID: s.TenantID, VariantID: variant})
		}
	}
	return asks
}

// decideTx counts the requests that were inserted, spends their tokens, and
// refuses those that have too little left or no token.
func (m *metering) decideTx(ctx context.Context, tx pgx.Tx, inserted []requests.Request) (map[requestrows.Ref]error, error) {
	charged := make(map[requestrows.Ref]bool, len(inserted))
	for i := range inserted {
		charged[requestrows.RefOf(&inserted[i])] = true
	}
	refused := make(map[requestrows.Ref]error)
	counted, redeems := make([]bool, len(m.group)), make([]bool, len(m.group))
	for i, w := range m.group {
		s := &w.submission
		ref := s.Ref()
		if !charged[ref] {
			continue
		}
		delete(charged, ref) // another member with the same name is the same request
		redeems[i] = m.needsToken(s) && w.hasToken
		counted[i] = redeems[i] || !m.needsToken(s)
		if !counted[i] {
			refused[ref] = ErrTokenRequired
		}
	}
	if err := m.tokens.LookUpTx(ctx, tx, func(i int) bool { return redeems[i] }); err != nil {
		return nil, err
	}
	results, err := m.limiter.DecideTx(ctx, tx, &ratelimit.DecideOpts{
		Skip: func(i int) bool { return !counted[i] },
		Refuse: func(i int, fits bool) error {
			if !redeems[i] {
				return nil
			}
			err := m.tokens.Redeem(i, fits)
			if refusal, ok := errors.AsType[tokens.RefusedError](err); ok {
				return &metered.Error{Kind: metered.ErrTokenRefused, Reason: string(refusal)}
			}
			return err
		},
		Queue: m.tokens.QueueSettle,
	})
	if err != nil {
		return nil, err
	}
	for i, result := range results {
		m.group[i].states = result.States
		if result.Err != nil {
			refused[m.group[i].submission.Ref()] = result.Err
		}
	}
	refuseSameKeys(m.group, refused)
	return refused, nil
}

// committed counts the refusals, and remembers the rates that had too little
// left.
func (m *metering) committed(_ context.Context, results map[requestrows.Ref]requestrows.Result) {
	for _, w := range m.group {
		s := &w.submission
		if err := results[s.Ref()].Err; err != nil {
			count(w.Context(), err)
			m.in.rates.markExhausted(m.began, s.TenantID, w.rates, w.states)
		}
	}
}

// refuseSameKeys refuses the members of the group that have the key of a
// refused request. They were not inserted because of that request, and may be
// tried again.
func refuseSameKeys(group []*waiter, refused map[requestrows.Ref]error) {
	if len(refused) == 0 {
		return
	}
	keys := make(map[requestrows.Key]bool)
	for _, w := range group {
		if s := &w.submission; refused[s.Ref()] != nil && s.IdempotencyKey != "" {
			keys[s.Key()] = true
		}
	}
	for _, w := range group {
		s := &w.submission
		if ref := s.Ref(); refused[ref] == nil && keys[s.Key()] {
			refused[ref] = &RefusedError{Why: WhyKey, RetryAfter: minRetryAfter}
		}
	}
}

// blockedError means that a group's rows were inserted, and then another
// transaction had a rate or a token locked for too long.
type blockedError struct {
	cause   error
	limiter *ratelimit.Batch
	tokens  *tokens.Redemptions
}

func (e *blockedError) Error() string { return "a rate or a token is locked: " + e.cause.Error() }

func (e *blockedError) Unwrap() error { return e.cause }

// blockedBy returns err as a *blockedError if it is one.
func blockedBy(also beside, err error) error {
	m, isMetered := also.(*metering)
	_, inserted := errors.AsType[*requestrows.BesideError](err)
	if isMetered && inserted && pg.IsLockTimeout(err) {
		return &blockedError{err, m.limiter, m.tokens}
	}
	return err
}

// refuseBlocked refuses the members of a blocked group that need a row which
// one transaction keeps locked. It returns the others, which the caller admits
// without them. In all likelihood, the transaction belongs to a process that
// has stopped or lost its machine, and its locks last longer than callers wait.
// The rates are remembered, so that no further group waits for them.
//
// A group may be blocked again, by rows that one transaction after another
// locks, and which are too many to wait for. Such a group is admitted tenant by
// tenant. If all its members are of one tenant they are refused, because that
// tenant has too much under way.
func (in *Intake) refuseBlocked(ctx context.Context, group []*waiter, blocked *blockedError) (parts [][]*waiter) {
	retried := group[0].retried
	var found ratelimit.Blocked
	if !retried || len(group) == 1 {
		lookup, cancel := context.WithTimeout(ctx, min(blockedTimeout, in.config.CommitTimeout))
		defer cancel()
		found, _ = blocked.limiter.Blocked(lookup, in.db, blocked.tokens.QueueLockOwners) // after an error: the items found so far
		in.rates.markLocked(time.Now(), found.Rates)
	}
	var out, rest []*waiter
	for i, w := range group {
		w.retried = true
		if slices.Contains(found.Items, i) {
			out = append(out, w)
		} else {
			rest = append(rest, w)
		}
	}
	switch tenants := byTenant(rest); {
	case retried && len(tenants) == 1:
		out = group
	case retried:
		parts = tenants
	case len(rest) > 0:
		parts = [][]*waiter{rest}
	}
	in.answerRefused(ctx, out)
	return parts
}

// byTenant splits a group by tenant, and keeps the order of the members.
func byTenant(group []*waiter) (tenants [][]*waiter) {
	places := make(map[uuid.UUID]int)
	for _, w := range group {
		place, known := places[w.submission.TenantID]
		if !known {
			place = len(tenants)
			places[w.submission.TenantID] = place
			tenants = append(tenants, nil)
		}
		tenants[place] = append(tenants[place], w)
	}
	return tenants
}

// blockedTimeout bounds the query for the blocked items.
const blockedTimeout = time.Second

// answerRefused answers callers that can't be admitted now. A caller whose key
// was used before receives its first answer. The others receive a RefusedError
// and may try again.
func (in *Intake) answerRefused(ctx context.Context, group []*waiter) {
	keyed := slices.DeleteFunc(slices.Clone(group), func(w *waiter) bool { return w.submission.IdempotencyKey == "" })
	var known map[requestrows.Ref]requestrows.Result
	if len(keyed) > 0 {
		known = in.lookUp(ctx, keyed)
	}
	for _, w := range group {
		a, ok := known[w.submission.Ref()]
		if !ok {
			a.Err = &RefusedError{Why: WhyBusy, RetryAfter: minRetryAfter}
			count(w.Context(), a.Err)
		}
		in.answer(w, a.View, a.Err)
	}
}
