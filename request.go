package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/requests"
)

type (
	// Request is what a caller asked for: queued, processing, done or failed
	// with a reason. Its hold, if it is granted, has its id.
	Request = requests.Request
	// Outcome is a request with the reservation that was made for it, nil if
	// there is none.
	Outcome = requests.View
)

// Add requests units of a variant for a cart, in addition to those that it
// holds. The request is queued when Add returns, and decided soon: Wait returns
// its outcome, and so does Add itself with CallOpts.Wait.
//
// Errors: *InvalidError, *RefusedError, ErrKeyReused, ErrOutcomeUnknown; where
// metered commands are on also ErrTokenRequired, metered.ErrTokenRefused and
// *ratelimit.ExceededError. That a variant is unknown or sold out is an outcome.
func (t *Tenant) Add(ctx context.Context, cart, variant string, quantity int32, opts *CallOpts) (Outcome, error) {
	return t.submit(ctx, requestrows.Submission{Kind: requests.Add, CartID: cart, VariantID: variant, Quantity: quantity}, opts)
}

// AddTx is Add in the caller's transaction, which must be READ COMMITTED: the
// request is queued when it commits. It is never refused for load, counted or
// waited for.
func (t *Tenant) AddTx(ctx context.Context, tx pgx.Tx, cart, variant string, quantity int32, opts *CallOpts) (Outcome, error) {
	return t.submitTx(ctx, tx, requestrows.Submission{Kind: requests.Add, CartID: cart, VariantID: variant, Quantity: quantity}, opts)
}

// Set requests that the cart holds quantity units of a variant, in place of
// those that it holds: the old hold is released and the new one made, both or
// neither. What the cart holds from an allotment is changed with
// CallOpts.Allotment only.
//
// Errors: as Add.
func (t *Tenant) Set(ctx context.Context, cart, variant string, quantity int32, opts *CallOpts) (Outcome, error) {
	return t.submit(ctx, requestrows.Submission{Kind: requests.Set, CartID: cart, VariantID: variant, Quantity: quantity}, opts)
}

// SetTx is Set in the caller's transaction, as AddTx is Add.
func (t *Tenant) SetTx(ctx context.Context, tx pgx.Tx, cart, variant string, quantity int32, opts *CallOpts) (Outcome, error) {
	return t.submitTx(ctx, tx, requestrows.Submission{Kind: requests.Set, CartID: cart, VariantID: variant, Quantity: quantity}, opts)
}

// AddUnits requests units of a block for a cart, all or none, up to 1,000: those
// that units names, or as many as quantity, any of them or neighbours.
//
// Errors: as Add. That a unit is taken is an outcome.
func (t *Tenant) AddUnits(ctx context.Context, cart, block string, units requests.Units, quantity int32, opts *CallOpts) (Outcome, error) {
	return t.submit(ctx, ofBlock(cart, block, units, quantity), opts)
}

// AddUnitsTx is AddUnits in the caller's transaction, as AddTx is Add.
func (t *Tenant) AddUnitsTx(ctx context.Context, tx pgx.Tx, cart, block string, units requests.Units, quantity int32, opts *CallOpts) (Outcome, error) {
	return t.submitTx(ctx, tx, ofBlock(cart, block, units, quantity), opts)
}

// AddLines requests several lines for a cart: 1 to 50, no variant and no kit in
// two of them. All units of all lines are held, or none; with Partial, what there
// is of each. Outcome.Outcomes has what is held for each line.
//
// Where a variant of the lines is hot, each line is decided in the order of its
// own variant's requests, and the request is processing until the last one is
// decided. Its holds are released if another line comes up short.
//
// Errors: as Add.
func (t *Tenant) AddLines(ctx context.Context, cart string, lines requests.Lines, opts *CallOpts) (Outcome, error) {
	return t.submit(ctx, severalLines(cart, lines), opts)
}

// AddLinesTx is AddLines in the caller's transaction, as AddTx is Add.
func (t *Tenant) AddLinesTx(ctx context.Context, tx pgx.Tx, cart string, lines requests.Lines, opts *CallOpts) (Outcome, error) {
	return t.submitTx(ctx, tx, severalLines(cart, lines), opts)
}

// severalLines is the submission of the lines, without the parts of kits: these
// are read when the request is accepted.
func severalLines(cart string, lines requests.Lines) requestrows.Submission {
	if slices.ContainsFunc(lines.Items, func(line requests.Line) bool { return len(line.Parts) > 0 }) {
		lines.Items = slices.Clone(lines.Items)
		for i := range lines.Items {
			lines.Items[i].Parts = nil
		}
	}
	return requestrows.Submission{Kind: requests.Several, CartID: cart, Lines: &lines}
}

func ofBlock(cart, block string, units requests.Units, quantity int32) requestrows.Submission {
	if len(units.IDs) > 0 {
		quantity = int32(len(units.IDs)) // more than 1,000 are refused
	}
	return requestrows.Submission{Kind: requests.Add, CartID: cart, VariantID: block, Quantity: quantity, Units: &units}
}

// Retry requests again what a failed request asked for, in the name of the
// operator who makes the call. A request is retried once. A retry does not undo
// what the buyer decided later: a cancelled request is not retried, and neither
// is a Set if the cart has a later request for the variant. It is counted in no
// rate and needs no admission token.
//
// Errors: ErrNotFound, and as Add. Any other error is why the request is not
// retried.
func (t *Tenant) Retry(ctx context.Context, requestID uuid.UUID, opts *CallOpts) (Outcome, error) {
	reading, cancel := context.WithTimeout(ctx, t.client.config.AttemptTimeout)
	defer cancel()
	s, err := requestrows.Retry(reading, t.client.db, t.TenantID, requestID)
	if _, retried := errors.AsType[*requestrows.RetriedError](err); retried && opts.key() != "" {
		err = nil // the admission returns the first retry for the same key
	}
	if err != nil {
		return Outcome{}, vocabulary(err)
	}
	return t.submit(ctx, s, opts)
}

// described completes a submission with the tenant and the options of its call.
func (t *Tenant) described(s requestrows.Submission, opts *CallOpts) (requestrows.Submission, error) {
	origin := opts.origin()
	s.TenantID, s.CorrelationID, s.ActorID, s.IdempotencyKey = t.TenantID, origin.CorrelationID, origin.Actor.ID, opts.key()
	s.RequestID, s.Waits = opts.id(), opts != nil && opts.Wait > 0
	if opts != nil && s.RetryOf == uuid.Nil {
		s.CustomerID = opts.Customer
	}
	if opts != nil && opts.WaitForStock {
		if s.Kind != requests.Add {
			return s, &InvalidError{Field: "wait_for_stock", Message: "is for units of a variant, or any units of a block"}
		}
		s.Kind = requests.Wait
	}
	if opts != nil && opts.Allotment != "" {
		if s.Units != nil || s.Lines != nil {
			return s, &InvalidError{Field: "allotment", Message: "is for units of a variant"}
		}
		s.Units = &requests.Units{Allotment: opts.Allotment}
	}
	if s.IdempotencyKey == "" {
		return s, nil
	}
	c := call[Outcome]{opts: opts, verb: string(s.Kind), args: []any{s.CartID, s.VariantID, s.Quantity, s.Units, s.RetryOf}}
	if s.Lines != nil {
		c.args = append(c.args, s.Lines)
	}
	var err error
	s.Fingerprint, err = c.fingerprint()
	return s, err
}

// expanded completes a submission with the parts of its kits, as they are now.
func (t *Tenant) expanded(ctx context.Context, db audit.Querier, s requestrows.Submission) (requestrows.Submission, error) {
	if s.Lines == nil {
		return s, nil
	}
	var err error
	s.Lines, err = requestrows.ExpandKits(ctx, db, t.TenantID, s.Lines)
	return s, err
}

func (t *Tenant) submitTx(ctx context.Context, tx pgx.Tx, s requestrows.Submission, opts *CallOpts) (Outcome, error) {
	s, err := t.described(s, opts)
	if err == nil {
		s, err = t.expanded(ctx, tx, s)
	}
	if err != nil {
		return Outcome{}, err
	}
	r, err := admission.SubmitTx(ctx, tx, t.client.inserter, s)
	opts.info().Replayed = err == nil && r.RequestID != s.RequestID
	return Outcome{Request: r}, vocabulary(err)
}

// submit queues a request, and waits for its outcome for CallOpts.Wait. Once the request is queued, nothing makes the result an error, except that of
// a repetition.
func (t *Tenant) submit(ctx context.Context, s requestrows.Submission, opts *CallOpts) (Outcome, error) {
	s, err := t.described(s, opts)
	if err != nil {
		return Outcome{}, err
	}
	began := time.Now()
	admitting, cancel := context.WithTimeout(ctx, 2*t.client.config.AttemptTimeout)
	defer cancel()
	s, err = t.expanded(admitting, t.client.db, s)
	if err != nil {
		return Outcome{}, err
	}
	v, err := t.admit(admitting, s, opts)
	if err != nil {
		return Outcome{}, vocabulary(err)
	}
	info := opts.info()
	info.Replayed = v.RequestID != s.RequestID
	switch {
	case v.Reservation != nil, v.Status == requests.Failed && !info.Replayed && s.Lines == nil:
		info.Waited = s.Waits // it was decided when it was admitted
	case v.Status.Finished():
		// A request that was made here is finished if its variant is digital.
		// Or a worker decided it before an admission whose COMMIT was in doubt
		// was read back; then it may have a reservation, or outcomes of its lines.
		later, err := requestrows.ReadView(admitting, t.client.db, v.Request)
		switch {
		case err == nil:
			v = later
		case info.Replayed:
			return Outcome{}, vocabulary(err)
		default:
			v.Status = requests.Queued // as it was accepted; the caller can read its outcome later
		}
	case s.Waits:
		info.Waited = true
		if later, err := t.waitUntil(ctx, v.RequestID, opts.Wait-time.Since(began), requests.Status.Decided); err == nil {
			v = later
		}
	}
	return v, nil
}

// admit admits a request: in one transaction with those of other callers while
// the client is started, else in its own.
func (t *Tenant) admit(ctx context.Context, s requestrows.Submission, opts *CallOpts) (Outcome, error) {
	c := t.client
	checked := c.config.Intake.Metered && s.RetryOf == uuid.Nil
	switch {
	case !c.accepts() && checked: // nothing here counts the request or spends its token
		return Outcome{}, fmt.Errorf("%w: the client does not accept metered requests now", ErrOverloaded)
	case !c.accepts():
		own := call[Outcome]{tenant: t, repeatable: s.IdempotencyKey != "", do: func(ctx context.Context, tx pgx.Tx) (v Outcome, _, err error) {
			v.Request, err = admission.SubmitTx(ctx, tx, c.inserter, s)
			return v, nil, err
		}}
		return own.run(ctx)
	}
	var credentials admission.Credentials
	if checked {
		credentials.Subject = s.CartID
		if opts != nil {
			credentials.Token = metered.ParseToken(opts.AdmissionToken)
			if opts.Customer != "" {
				credentials.Subject = opts.Customer
			}
		}
		credentials.Rates = c.config.Rates.of(credentials.Subject)
	}
	v, states, err := c.acceptor.Intake.SubmitMetered(ctx, s, credentials)
	info := opts.info()
	info.Rates, info.States = credentials.Rates, states
	if pg.IsOutage(err) && !pg.IsRetryable(err) && !errors.Is(err, ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return v, err
}

// Request returns a request as it is now.
//
// Errors: ErrNotFound.
func (t *Tenant) Request(ctx context.Context, requestID uuid.UUID) (Outcome, error) {
	v, err := requestrows.Get(ctx, t.client.db, t.TenantID, requestID)
	return v, vocabulary(err)
}

// pollEvery is how often Wait reads a request in a process that does not accept
// requests.
const pollEvery = 100 * time.Millisecond

// Wait returns a request when it is done or failed, or as it is after the
// timeout.
//
// Errors: ErrNotFound; ctx's.
func (t *Tenant) Wait(ctx context.Context, requestID uuid.UUID, timeout time.Duration) (Outcome, error) {
	return t.waitUntil(ctx, requestID, timeout, requests.Status.Finished)
}

// waitUntil is Wait until the status is as wanted.
func (t *Tenant) waitUntil(ctx context.Context, requestID uuid.UUID, timeout time.Duration, until func(requests.Status) bool) (Outcome, error) {
	c := t.client
	if c.accepts() {
		v, err := c.watcher.Wait(ctx, t.TenantID, requestID, timeout, until)
		return v, vocabulary(err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+c.config.AttemptTimeout)
	defer cancel()
	over := time.NewTimer(timeout)
	defer over.Stop()
	for last := timeout <= 0; ; {
		v, err := t.Request(ctx, requestID)
		if err != nil || until(v.Status) || last {
			return v, err
		}
		last = c.pause(ctx, over.C, pollEvery)
	}
}

// pause waits for the given time. It reports whether the wait is over before
// that: over or ctx has ended, or EndWaits was called.
func (c *Client) pause(ctx context.Context, over <-chan time.Time, pause time.Duration) (ended bool) {
	again := time.NewTimer(pause)
	defer again.Stop()
	select {
	case <-again.C:
		return false
	case <-over:
	case <-c.waitsEnd:
	case <-ctx.Done():
	}
	return true
}

// Observe returns a request when it is finished, or as it is after the pause. It
// is for callers that follow a request for long: the requests of many of them
// are read in one statement.
//
// Errors: ErrNotFound; ctx's.
func (t *Tenant) Observe(ctx context.Context, requestID uuid.UUID, pause time.Duration) (Outcome, error) {
	v, err := t.client.watcher.Observe(ctx, t.TenantID, requestID, pause)
	return v, vocabulary(err)
}
