package metered

import (
	"errors"

	"github.com/holdfast/holdfast/internal/isolation"
)

// ErrRefused is every refusal of this package: bad input, or a state that does not allow what was asked for. After a refusal
// nothing has changed, and the caller's transaction can go on. Every other error is the database's or the network's, and the
// transaction must be rolled back.
//
// Why it was refused is one of the sentinels below, and where there is more to know, a type with fields that is its sentinel:
// [*InvalidError] is ErrInvalid, [*OverBudgetError] is ErrOverBudget, [*OverRateError] is ErrOverRate. A verb for one returns
// the refusal as its error; a verb for a group returns it as Err of the member's [Verdict] or [Entry].
var ErrRefused = errors.New("metered: refused")

// ErrIsolation is returned by a verb that needs READ COMMITTED in a transaction of a stricter level. Postgres has aborted the
// transaction: it is no refusal.
var ErrIsolation = isolation.ErrLevel

// refusal is a sentinel, and the one that it belongs to.
type refusal struct {
	text   string
	parent error
}

func (r *refusal) Error() string { return "metered: " + r.text }

func (r *refusal) Unwrap() error { return r.parent }

func refuse(text string) error { return &refusal{text, ErrRefused} }

// Why something is refused.
var (
	// ErrInvalid is bad input; an [*InvalidError] names the field.
	ErrInvalid = refuse("invalid input")
	// ErrOverBudget means that a budget has no room; an [*OverBudgetError] says how much is left and for how long.
	ErrOverBudget = refuse("over budget")
	// ErrOverRate means that a rate has no room; an [*OverRateError] says how it stands.
	ErrOverRate = refuse("over the rate")
	// ErrKeyReused means that the idempotency key stands for another job: of another kind, or with other arguments.
	ErrKeyReused = refuse("the idempotency key was used for another command")
	// ErrUnknownReservation means that the tenant's ledger has no such reservation, or that it was purged.
	ErrUnknownReservation = refuse("unknown reservation")
	// ErrSettled means that the reservation was settled or released before.
	ErrSettled = refuse("the reservation is settled")
	// ErrUnknownCommand means that the tenant has no such command, or that its key was purged.
	ErrUnknownCommand = refuse("unknown command")
	// ErrEnded means that another run of the job ended its command before.
	ErrEnded = refuse("the command has ended")
	// ErrForeignJob means that a job was not enqueued by this package.
	ErrForeignJob = refuse("the job belongs to no command")
)

// Why a token is refused, in the order in which it is checked, so that only who has the right purpose and subject learns what
// became of the token. For logs and metrics: the caller that presents a token receives ErrTokenRefused at most, which all of them are.
var (
	ErrTokenRefused = refuse("the token is not valid")
	// ErrTokenMalformed means that the text cannot be a token: a typing error. The database was not asked.
	ErrTokenMalformed = tokenRefused("malformed")
	// ErrTokenUnknown means that the tenant has no such token, or that it was purged.
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
	{ErrOverRate, "over_rate"},
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
