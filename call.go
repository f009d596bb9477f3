package holdfast

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/ratelimit"
)

// CallOpts are the options of one call. Nil is the zero value.
type CallOpts struct {
	// IdempotencyKey, 1 to 255 characters, makes the call safe to repeat: the
	// same call with the same key has one effect, and returns what the first one
	// returned. The key is kept for the retention of finished requests (default
	// 168 h). Without it, each call is a new one.
	IdempotencyKey string
	// CorrelationID is recorded with what the call does.
	CorrelationID string
	// Actor is who makes the call, for the record; the zero value is the system.
	// A request records the id only, as that of a user.
	Actor Actor
	// Reason is why, for the record of the calls that are no requests.
	Reason string
	// ID is the id of the request or the checkout that the call makes, a UUIDv7;
	// zero: a new one.
	ID uuid.UUID

	// Wait is how long a call that requests units waits for the outcome. What
	// callers wait for is decided in the transaction that accepts it, where that
	// is possible. When the time is over, the call returns the queued request.
	Wait time.Duration
	// WaitForStock makes a request for units of a variant, or for any units of a
	// block, wait in line if it comes up short: its status is then
	// requests.Waiting. Units that become free are offered to the requests in line
	// in their order, and held for Sale.ClaimSeconds.
	WaitForStock bool
	// Allotment is from which allotment of the variant units are requested (Add,
	// Set); empty: from those that are for sale to all.
	Allotment string
	// Customer is who requests units: whose limits apply (Sale), and where
	// metered commands are on the customer of Config.Rates and the subject of the
	// admission token; the cart's id if it is empty. AdmissionToken is spent if
	// the variant requires one, where metered commands are on.
	Customer, AdmissionToken string

	// Info, if not nil, receives what else there is to know about the call.
	Info *CallInfo
}

// CallInfo is what is known about a call besides its result.
type CallInfo struct {
	// Replayed: the result is that of an earlier call with the same key.
	Replayed bool
	// Waited: the call has waited for the outcome of its request.
	Waited bool
	// Rates are the rates that counted the request, and States how it left them;
	// see ratelimit.State.
	Rates  []ratelimit.Rate
	States []ratelimit.State
}

func (o *CallOpts) origin() audit.Origin {
	if o == nil {
		return audit.Origin{}
	}
	return audit.Origin{Actor: o.Actor, CorrelationID: o.CorrelationID, Reason: o.Reason}
}

func (o *CallOpts) key() string {
	if o == nil {
		return ""
	}
	return o.IdempotencyKey
}

func (o *CallOpts) customer() string {
	if o == nil {
		return ""
	}
	return o.Customer
}

func (o *CallOpts) id() uuid.UUID {
	if o == nil || o.ID == uuid.Nil {
		return requestrows.NewID()
	}
	return o.ID
}

// info is where to write what is known about the call.
func (o *CallOpts) info() *CallInfo {
	if o == nil || o.Info == nil {
		return &CallInfo{}
	}
	return o.Info
}

// call is one call of a verb: its name and arguments, which are the fingerprint
// of its idempotency key, and what it does.
type call[T any] struct {
	tenant *Tenant
	opts   *CallOpts
	verb   string
	args   []any
	// do does it in a transaction. A conflict is an outcome whose transaction is
	// committed; nothing is stored under the key for it. It may run more than
	// once, each time without the state of another run.
	do func(ctx context.Context, tx pgx.Tx) (result T, conflict, err error)
	// repeatable means that a repetition changes nothing even without a key.
	repeatable bool
	// hold and result are set by holdCall.
	hold   *inventory.Call
	result func(carts.Applied) T

	replayed bool // the result is that of an earlier call
}

func (c *call[T]) fingerprint() (none [32]byte, err error) {
	if c.opts.key() == "" {
		return none, nil
	}
	text, err := json.Marshal(append([]any{c.verb}, c.args...))
	return sha256.Sum256(text), err
}

// runTx makes the call in the caller's transaction, or returns what the first
// call under its key returned.
func (c *call[T]) runTx(ctx context.Context, tx pgx.Tx) (result T, conflict, err error) {
	fingerprint, err := c.fingerprint()
	if err != nil {
		return result, nil, err
	}
	key := requestrows.Key{TenantID: c.tenant.TenantID, Key: c.opts.key()}
	stored, conflict, err := requestrows.OnceTx(ctx, tx, key, fingerprint, func() (answer tenants.Answer, conflict, err error) {
		if result, conflict, err = c.do(ctx, tx); err == nil && conflict == nil && key.Key != "" {
			answer, err = c.storable(result)
		}
		return answer, conflict, err
	})
	if c.isReplay(stored) {
		err = json.Unmarshal(stored.Body, &result)
	}
	return result, conflict, err
}

func (c *call[T]) storable(result T) (tenants.Answer, error) {
	var stored any = result
	if secret, ok := stored.(interface{ WithoutSecrets() any }); ok {
		stored = secret.WithoutSecrets()
	}
	body, err := json.Marshal(stored)
	return tenants.Answer{StatusCode: http.StatusOK, Body: body}, err
}

// isReplay records whether there is a stored result.
func (c *call[T]) isReplay(stored *tenants.Answer) bool {
	c.replayed = stored != nil
	c.opts.info().Replayed = c.replayed
	return c.replayed
}

// attemptsMax is how often a call is made that had no effect for a reason that
// passes, such as a deadlock or a silent database, each time within
// Config.AttemptTimeout.
const attemptsMax = 3

// run makes the call in a transaction of its own. If the outcome of a COMMIT is
// unknown, it makes the call again only if that is harmless, because the call
// has a key or is repeatable.
func (c *call[T]) run(ctx context.Context) (result T, err error) {
	var unsure bool // whether an attempt has taken effect
	for attempt := 1; ; attempt++ {
		var conflict error
		var committing bool
		result, conflict, committing, err = c.try(ctx)
		silent := !committing && errors.Is(err, context.DeadlineExceeded)
		unknown := committing && pg.Code(err) == "" && !pg.IsRetryable(err) && !errors.Is(err, pgx.ErrTxCommitRollback)
		unsure = unsure || unknown
		again := silent || pg.IsRetryable(err) || unknown && (c.opts.key() != "" || c.repeatable)
		switch {
		case err == nil:
			return result, conflict
		case again && attempt < attemptsMax && ctx.Err() == nil:
		case unsure:
			return *new(T), fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		default:
			return *new(T), vocabulary(err)
		}
	}
}

// try is one attempt of run. committing means that err is the error of the
// COMMIT.
func (c *call[T]) try(ctx context.Context) (result T, conflict error, committing bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.tenant.client.config.AttemptTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, c.tenant.client.db, func(tx pgx.Tx) (err error) {
		result, conflict, err = c.runTx(ctx, tx)
		if err == nil && c.replayed {
			return errReplayed
		}
		committing = err == nil
		return err
	})
	if errors.Is(err, errReplayed) {
		err = nil
	}
	return result, conflict, committing, err
}

// errReplayed ends a transaction that has nothing to commit.
var errReplayed = errors.New("the result was stored before")

// Once calls do in a transaction of its own, as the verbs do it: once per
// idempotency key, whose later calls return the result of the first one, and
// again after a failure that had no effect. The name and the arguments tell
// calls apart that have the same key. The result is stored by encoding/json,
// without what its method WithoutSecrets, if it has one, leaves out.
//
// Errors: those of do; ErrKeyReused, ErrOutcomeUnknown.
func Once[T any](ctx context.Context, t *Tenant, name string, args []any, do func(ctx context.Context, tx pgx.Tx) (T, error), opts *CallOpts) (T, error) {
	c := &call[T]{
		tenant: t, opts: opts, verb: name, args: args,
		do: func(ctx context.Context, tx pgx.Tx) (result T, _, err error) {
			result, err = do(ctx, tx)
			return result, nil, err
		},
	}
	return c.run(ctx)
}

// inTx makes the call in the caller's transaction. After a conflict the
// transaction is usable.
func (c *call[T]) inTx(ctx context.Context, tx pgx.Tx) (T, error) {
	result, conflict, err := c.runTx(ctx, tx)
	return result, errors.Join(conflict, vocabulary(err))
}

// accepts reports whether calls are committed in groups.
func (c *Client) accepts() bool { return c.acceptor != nil && c.started.Load() }

// holdCall makes a call of a synchronous verb. result makes its result of what
// the verb has changed.
func holdCall[T any](t *Tenant, opts *CallOpts, name string, v inventory.Call, result func(carts.Applied) T) *call[T] {
	v.TenantID, v.Origin, v.LifetimeMax = t.TenantID, opts.origin(), t.client.config.Terms.LifetimeMax
	return &call[T]{
		tenant: t, opts: opts, verb: name, args: []any{v.CartID, v.VariantID, v.KitID, v.ReservationID, v.Reason, v.By}, hold: &v, result: result,
		do: func(ctx context.Context, tx pgx.Tx) (of T, conflict, err error) {
			applied, err := carts.ApplyTx(ctx, tx, v)
			switch {
			case err != nil:
				return of, nil, err
			case applied.Conflict != nil:
				return of, applied.Conflict, nil
			}
			return result(applied), nil, nil
		},
	}
}

// grouped makes a call of holdCall: in one transaction with those of other
// callers while the client is started, else in its own.
func (c *call[T]) grouped(ctx context.Context) (none T, err error) {
	client := c.tenant.client
	if !client.accepts() {
		return c.run(ctx)
	}
	grouped := carts.Call{Call: *c.hold, Key: c.opts.key()}
	if grouped.Key != "" {
		if grouped.Fingerprint, err = c.fingerprint(); err != nil {
			return none, err
		}
		grouped.Answer = func(r inventory.Result) (tenants.Answer, error) {
			return c.storable(c.result(carts.Applied{Reservations: r.Reservations}))
		}
	}
	done, err := client.acceptor.Groups.Do(ctx, grouped)
	switch {
	case errors.Is(err, carts.ErrNotGrouped):
		return c.run(ctx)
	case err != nil:
		return none, vocabulary(err)
	case c.isReplay(done.Replayed):
		err := json.Unmarshal(done.Replayed.Body, &none)
		return none, err
	}
	return c.result(carts.Applied{Reservations: done.Reservations}), nil
}
