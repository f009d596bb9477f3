package admission

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

// holdRequestsOf returns the submissions as hold requests, with the fields on
// which their admission depends.
func holdRequestsOf(group []requests.Submission) []inventory.HoldRequest {
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

// admitMetered admits the members of the group that the batch limiter does not
// refuse, in one transaction. One round trip inserts the rows, spends the
// tokens and counts the rates. A few more undo the charges of members that are
// refused or were admitted before, and delete the rows of refused ones.
func (in *Intake) admitMetered(ctx context.Context, conn *pgxpool.Conn, group []*waiter, submissions []requests.Submission) (admitted map[requests.Ref]requests.Result, err error) {
	items, presented := make([]ratelimit.Item, len(group)), make([]metered.Presented, len(group))
	for i, w := range group {
		items[i], presented[i] = w.item, w.token
	}
	limiter, err := ratelimit.NewBatch(items)
	if err != nil {
		return nil, err
	}
	tokens := metered.NewRedemptions(presented)
	began := time.Now()
	var wakes []lanes.Stream
	insertion := requests.NewInsertion(submissions)
	asks, covered := holdRequestsOf(submissions), make(map[requests.Ref]bool) // no token needed: the cart holds as much
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		insertion.Queue(b)
		guarded := inventory.QueueTokenRequired(b, asks)
		inventory.QueueCovered(b, asks, func(tenantID, requestID uuid.UUID) {
			covered[requests.Ref{TenantID: tenantID, RequestID: requestID}] = true
		})
		tokens.Queue(b) // tokens are locked before rates
		limiter.Queue(b)
		err := tx.SendBatch(ctx, b).Close()
		if pgerr.IsLockTimeout(err) && insertion.Inserted() != nil {
			return &blockedError{err, limiter, tokens}
		}
		if err != nil {
			return err
		}
		err = chargeInserted(ctx, tx, limiter, tokens, insertion, group, func(s *requests.Submission) bool {
			if s.RetryOf != uuid.Nil {
				return false // the failed request has spent its token
			}
			return guarded[inventory.Ref{TenantID: s.TenantID, VariantID: s.VariantID}] && !covered[s.Ref()]
		})
		if err != nil {
			return err
		}
		if err := insertion.RecordRetriesTx(ctx, tx); err != nil {
			return err
		}
		admitted, wakes, err = outcome(ctx, tx, insertion, nil)
		return err
	})
	if err == nil {
		in.rememberRefused(group, admitted, began)
		in.committed(wakes, slices.DeleteFunc(submissions, func(s requests.Submission) bool {
			return admitted[s.Ref()].Err != nil
		}))
	}
	return admitted, err
}

// chargeInserted counts the requests that were inserted and spends their
// tokens. It withdraws the rows of the requests that are refused.
func chargeInserted(
	ctx context.Context, tx pgx.Tx, limiter *ratelimit.Batch, tokens *metered.Redemptions,
	insertion *requests.Insertion, group []*waiter, needsToken func(*requests.Submission) bool,
) error {
	inserted := make(map[requests.Ref]bool)
	for _, r := range insertion.Inserted() {
		inserted[r.Ref()] = true
	}
	refused := make(map[requests.Ref]error)
	results, err := limiter.DecideTx(ctx, tx, func(i int) ratelimit.Mode {
		s := &group[i].submission
		ref := s.Ref()
		if !inserted[ref] {
			return ratelimit.Skip
		}
		delete(inserted, ref) // another member with the same name is the same request
		switch {
		case !needsToken(s):
			return ratelimit.Count
		case !group[i].hasToken:
			refused[ref] = ErrTokenRequired
			return ratelimit.Skip
		default:
			return ratelimit.CountAndRedeem
		}
	}, tokens)
	if err != nil {
		return err
	}
	for i, result := range results {
		group[i].states = result.States
		if result.Err != nil {
			refused[group[i].submission.Ref()] = result.Err
		}
	}
	if len(refused) == 0 {
		return nil
	}
	refuseSameKeys(group, refused)
	return insertion.WithdrawTx(ctx, tx, refused)
}

// refuseSameKeys refuses the members of the group that have the key of a
// refused request. They were not inserted because of that request, and may be
// tried again.
func refuseSameKeys(group []*waiter, refused map[requests.Ref]error) {
	keys := make(map[requests.Key]bool)
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

// rememberRefused counts the refusals of a group. It remembers the rates that
// had too little left at the time seen.
func (in *Intake) rememberRefused(group []*waiter, admitted map[requests.Ref]requests.Result, seen time.Time) {
	for _, w := range group {
		s := &w.submission
		if err := admitted[s.Ref()].Err; err != nil {
			count(w.ctx, err)
			in.rates.MarkExhausted(seen, s.TenantID, w.rates, w.states)
		}
	}
}

// blockedError means that a group's rows were inserted, and then another
// transaction had a rate or a token locked for too long.
type blockedError struct {
	cause   error
	limiter *ratelimit.Batch
	tokens  *metered.Redemptions
}

func (e *blockedError) Error() string { return "a rate or a token is locked: " + e.cause.Error() }

func (e *blockedError) Unwrap() error { return e.cause }

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
		in.rates.MarkLocked(time.Now(), found.Rates)
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
	var known map[requests.Ref]requests.Result
	if len(keyed) > 0 {
		known = in.lookUp(ctx, keyed)
	}
	for _, w := range group {
		a, ok := known[w.submission.Ref()]
		if !ok {
			a.Err = &RefusedError{Why: WhyBusy, RetryAfter: minRetryAfter}
			count(w.ctx, a.Err)
		}
		in.answer(w, a.View, a.Err)
	}
}
