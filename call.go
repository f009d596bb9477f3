package holdfast

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/reservations"
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
	Actor Actor
}

func (o *CallOpts) origin() audit.Origin {
	if o == nil {
		return audit.Origin{}
	}
	return audit.Origin{Actor: o.Actor, CorrelationID: o.CorrelationID}
}

func (o *CallOpts) key() string {
	if o == nil {
		return ""
	}
	return o.IdempotencyKey
}

// call is one call of a verb: its name and arguments, which are the fingerprint
// of its idempotency key, and what it does.
type call[T any] struct {
	tenant *Tenant
	opts   *CallOpts
	verb   string
	args   []any
	// do does it in a transaction. A conflict is an outcome whose transaction is
	// committed; nothing is stored under the key for it.
	do func(ctx context.Context, tx pgx.Tx) (result T, conflict, err error)
}

func (c *call[T]) fingerprint() (none [32]byte, err error) {
	if c.opts.key() == "" {
		return none, nil
	}
	text, err := json.Marshal([]any{"library", c.verb, c.args})
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
		if result, conflict, err = c.do(ctx, tx); err == nil && conflict == nil {
			answer, err = storable(result)
		}
		return answer, conflict, err
	})
	if stored != nil {
		err = json.Unmarshal(stored.Body, &result)
	}
	return result, conflict, err
}

func storable(result any) (tenants.Answer, error) {
	body, err := json.Marshal(result)
	return tenants.Answer{StatusCode: http.StatusOK, Body: body}, err
}

// attemptsMax is how often a call is made whose transaction was rolled back for
// a reason that passes, such as a deadlock.
const attemptsMax = 3

// run makes the call in a transaction of its own.
func (c *call[T]) run(ctx context.Context) (result T, err error) {
	for attempt := 1; ; attempt++ {
		var conflict error
		committing := false
		err = pgx.BeginFunc(ctx, c.tenant.client.db, func(tx pgx.Tx) (err error) {
			result, conflict, err = c.runTx(ctx, tx)
			committing = err == nil
			return err
		})
		switch {
		case err == nil:
			return result, conflict
		case committing && pg.Code(err) == "" && !errors.Is(err, pgx.ErrTxCommitRollback):
			return *new(T), fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		case attempt == attemptsMax, !pg.IsRetryable(err), ctx.Err() != nil:
			return *new(T), vocabulary(err)
		}
	}
}

// inTx makes the call in the caller's transaction. After a conflict the
// transaction is usable.
func (c *call[T]) inTx(ctx context.Context, tx pgx.Tx) (T, error) {
	result, conflict, err := c.runTx(ctx, tx)
	return result, errors.Join(conflict, vocabulary(err))
}

// synchronous makes a call of a synchronous verb: in one transaction with those
// of other callers while the client is started, else in its own. result makes
// its result of the reservations that it has changed.
func (c *call[T]) synchronous(ctx context.Context, verb *inventory.Call, result func([]reservations.Reservation) T) (replayed T, err error) {
	client := c.tenant.client
	if client.acceptor == nil || !client.started.Load() {
		return c.run(ctx)
	}
	verb.TenantID, verb.Origin = c.tenant.TenantID, c.opts.origin()
	grouped := carts.Call{Call: *verb, Key: c.opts.key()}
	if grouped.Key != "" {
		if grouped.Fingerprint, err = c.fingerprint(); err != nil {
			return replayed, err
		}
		grouped.Answer = func(r inventory.Result) (tenants.Answer, error) { return storable(result(r.Reservations)) }
	}
	done, err := client.acceptor.Groups.Do(ctx, grouped)
	switch {
	case errors.Is(err, carts.ErrNotGrouped):
		return c.run(ctx)
	case err != nil:
		return replayed, vocabulary(err)
	case done.Replayed != nil:
		err := json.Unmarshal(done.Replayed.Body, &replayed)
		return replayed, err
	}
	return result(done.Reservations), nil
}
