package metered

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/tokens"
)

// The kinds of refusals: see [Error].
var (
	// ErrInvalid is invalid input.
	ErrInvalid = errors.New("metered: invalid input")
	// ErrOverBudget means that too little of a budget is left.
	ErrOverBudget = errors.New("metered: over budget")
	// ErrTokenRefused means that a token is not valid. The caller that presents
	// it should not learn more.
	ErrTokenRefused = errors.New("metered: the token is not valid")
	// ErrKeyReused means that the idempotency key belongs to another job: of
	// another kind, or with other arguments.
	ErrKeyReused = errors.New("metered: the idempotency key was used for another command")
	// ErrUnknown means that the tenant has no such reservation or command, or
	// that it was purged; or that a job was not enqueued by this package.
	ErrUnknown = errors.New("metered: unknown")
	// ErrSettled means that the reservation has already been settled.
	ErrSettled = errors.New("metered: the reservation is settled")
	// ErrEnded means that another run of the job has already ended its command.
	ErrEnded = errors.New("metered: the command has ended")
)

// Error is a refusal: invalid input, or a state that does not allow the call.
// After a refusal nothing has changed, and the caller's transaction can go on.
// Every other error is the database's or the network's, and the transaction
// must be rolled back.
type Error struct {
	// Kind is one of the sentinels of this package; errors.Is matches it.
	Kind error
	// Field is the field of invalid input, and Message what is wrong with it,
	// in words for the caller.
	Field, Message string
	// Reason is why a token is refused: the first of malformed, unknown,
	// purpose, subject, used and expired that applies. Only a caller with the
	// right purpose and subject learns the token's state. It is for logs and
	// metrics.
	Reason string
	// Charge is the one that did not fit in its budget. Remaining and Wait are
	// those of [Budget].
	Charge    Charge
	Remaining int64
	Wait      time.Duration
}

func (e *Error) Error() string {
	switch {
	case e.Reason != "":
		return "metered: " + tokens.RefusedError(e.Reason).Error()
	case e.Field != "":
		return "metered: " + e.Field + ": " + e.Message
	case e.Message != "":
		return "metered: " + e.Message
	case errors.Is(e.Kind, ErrOverBudget):
		c := &e.Charge
		return fmt.Sprintf("metered: over budget: %d of %s asked for, %d of %d left in %s", c.Amount, c.Scope, e.Remaining, c.Limit, c.Window)
	}
	return e.Kind.Error()
}

// Unwrap returns the kind.
func (e *Error) Unwrap() []error {
	switch {
	case e.Reason != "":
		return []error{e.Kind, tokens.RefusedError(e.Reason)}
	case e.Field != "":
		return []error{e.Kind, &invalid.Error{Field: e.Field, Message: e.Message}}
	}
	return []error{e.Kind}
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

// invalidField is a refusal of invalid input.
func invalidField(field, format string, args ...any) error {
	return &Error{Kind: ErrInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// unknown is a refusal because there is no such thing.
func unknown(message string) error { return &Error{Kind: ErrUnknown, Message: message} }

var (
	errUnknownReservation = unknown("unknown reservation")
	errUnknownCommand     = unknown("unknown command")
	errForeignJob         = unknown("the job belongs to no command")
)

// outcomes are the refusals as a verb's outcome in metrics.
var outcomes = map[error]string{
	ErrInvalid: "invalid", ErrOverBudget: "over_budget", ErrTokenRefused: "token_refused", ErrKeyReused: "key_reused",
	ErrSettled: "settled", ErrEnded: "ended", ErrUnknown: "unknown",
}

// outcomeOf separates a refusal, which is an outcome, from an error.
func outcomeOf(err error) (string, error) {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return outcomes[refusal.Kind], nil
	}
	return "", err
}

// textMax is how many characters a scope, a purpose, a subject or an
// idempotency key may have.
const textMax = 255

// validateTenant refuses the zero tenant. A caller that forgets the tenant
// would otherwise share charges and tokens with all others that forget it.
func validateTenant(tenantID uuid.UUID) error {
	if tenantID == uuid.Nil {
		return invalidField("tenant_id", "must not be zero")
	}
	return nil
}

// validateText accepts 1 to most characters of UTF-8 without control
// characters.
func validateText(field, s string, most int) error {
	if message := invalid.Text(s, most); message != "" {
		return invalidField(field, "%s", message)
	}
	return nil
}

// inTx runs a verb in its own transaction, at READ COMMITTED even if the
// database's default is another level: there a lost race has an outcome instead
// of a serialization failure. A refusal is committed, so that sums that were
// counted for it need not be counted again.
func inTx[T any](ctx context.Context, db *pgxpool.Pool, do func(tx pgx.Tx) (T, error)) (result T, err error) {
	var refusal error
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		result, err = do(tx)
		if isRefusal(err) {
			refusal = err
			return nil
		}
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return result, refusal
}
