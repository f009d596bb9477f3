package metered

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/pg"
)

// ErrRefused is every refusal of this package: invalid input, or a state that
// does not allow the call. After a refusal nothing has changed, and the
// caller's transaction can go on. Every other error is the database's or the
// network's, and the transaction must be rolled back.
//
// The reason is one of the sentinels below. Some have a type with fields:
// [*InvalidError] is ErrInvalid, [*OverBudgetError] is ErrOverBudget.
var ErrRefused = errors.New("metered: refused")

// ErrIsolation is returned by a verb that needs READ COMMITTED in a transaction
// of a stricter level. Postgres has aborted the transaction, so it is not a
// refusal.
var ErrIsolation = pg.ErrIsolation

// refusal is a sentinel, and its parent.
type refusal struct {
	text   string
	parent error
}

func (r *refusal) Error() string { return "metered: " + r.text }

func (r *refusal) Unwrap() error { return r.parent }

func newRefusal(text string) error { return &refusal{text, ErrRefused} }

// The reasons of a refusal.
var (
	// ErrInvalid is invalid input; an [*InvalidError] names the field.
	ErrInvalid = newRefusal("invalid input")
	// ErrOverBudget means that too little of a budget is left; an
	// [*OverBudgetError] has what is left and how long to wait.
	ErrOverBudget = newRefusal("over budget")
	// ErrKeyReused means that the idempotency key belongs to another job: of
	// another kind, or with other arguments.
	ErrKeyReused = newRefusal("the idempotency key was used for another command")
	// ErrUnknownReservation means that the tenant's ledger has no such
	// reservation, or that it was purged.
	ErrUnknownReservation = newRefusal("unknown reservation")
	// ErrSettled means that the reservation has already been settled or
	// released.
	ErrSettled = newRefusal("the reservation is settled")
	// ErrUnknownCommand means that the tenant has no such command, or that its
	// key was purged.
	ErrUnknownCommand = newRefusal("unknown command")
	// ErrEnded means that another run of the job has already ended its command.
	ErrEnded = newRefusal("the command has ended")
	// ErrForeignJob means that a job was not enqueued by this package.
	ErrForeignJob = newRefusal("the job belongs to no command")
)

// Why a token is refused, in the order of the checks: only a caller with the
// right purpose and subject learns the token's state. The reasons are for logs
// and metrics. The caller that presents a token should receive ErrTokenRefused
// at most, which all of them are.
var (
	ErrTokenRefused = newRefusal("the token is not valid")
	// ErrTokenMalformed means that the text cannot be a token, for example
	// because of a typing error. The database was not asked.
	ErrTokenMalformed = tokenRefused("malformed")
	// ErrTokenUnknown means that the tenant has no such token, or that it was
	// purged.
	ErrTokenUnknown = tokenRefused("unknown")
	ErrTokenPurpose = tokenRefused("minted for another purpose")
	ErrTokenSubject = tokenRefused("minted for another subject")
	ErrTokenUsed    = tokenRefused("used")
	ErrTokenExpired = tokenRefused("expired")
)

func tokenRefused(why string) error {
	return &refusal{"the token is not valid: " + why, ErrTokenRefused}
}

// outcomes are the refusals as a verb's outcome in metrics.
var outcomes = []struct {
	refusal error
	outcome string
}{
	{ErrInvalid, "invalid"},
	{ErrOverBudget, "over_budget"},
	{ErrTokenRefused, "token_refused"},
	{ErrKeyReused, "key_reused"},
	{ErrSettled, "settled"},
	{ErrEnded, "ended"},
	{ErrRefused, "unknown"},
}

// outcomeOf separates a refusal, which is an outcome, from an error.
func outcomeOf(err error) (string, error) {
	for _, o := range outcomes {
		if errors.Is(err, o.refusal) {
			return o.outcome, nil
		}
	}
	return "", err
}

// InvalidError is bad input: the field it came in and what is wrong with it, in
// words for the caller. It is ErrInvalid.
type InvalidError invalid.Error

func (e *InvalidError) Error() string { return "metered: " + e.Field + ": " + e.Message }

// Unwrap returns ErrInvalid, and the error without the name of this package.
func (e *InvalidError) Unwrap() []error { return []error{ErrInvalid, (*invalid.Error)(e)} }

// TextMax is how many characters a scope, a purpose, a subject or an
// idempotency key may have.
const TextMax = 255

// validateTenant refuses the zero tenant. A caller that forgets the tenant
// would otherwise share charges and tokens with all others that forget it.
func validateTenant(tenantID uuid.UUID) error {
	if tenantID == uuid.Nil {
		return &InvalidError{Field: "tenant_id", Message: "must not be zero"}
	}
	return nil
}

// validateText accepts 1 to most characters of UTF-8 without control
// characters.
func validateText(field, s string, most int) error {
	if message := invalid.Text(s, most); message != "" {
		return &InvalidError{Field: field, Message: message}
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
		if errors.Is(err, ErrRefused) {
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
