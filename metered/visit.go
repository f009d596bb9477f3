package metered

import (
	"crypto/sha256"
	"fmt"

	"github.com/google/uuid"
)

// Visit is what one member of a group shows at a [Turnstile]: what it is counted in, and its token. It is made by
// [NewVisit], which does all that can be done for one visit alone.
type Visit struct {
	tenant uuid.UUID
	rates  []counted
	spend  *presented
}

// presented is a redemption whose token was looked at.
type presented struct {
	Redemption
	wellFormed bool
	hash       [sha256.Size]byte
}

// NewVisit makes a visit that is counted in at most RatesMax rates and presents a token; nil for none. The error for bad
// input is an [*InvalidError]. A token that is none is no bad input: it is refused where it is needed.
func NewVisit(tenantID uuid.UUID, rates []Rate, spend *Redemption) (Visit, error) {
	if len(rates) > RatesMax {
		return Visit{}, &InvalidError{Field: "rates", Message: fmt.Sprintf("must be at most %d", RatesMax)}
	}
	if err := validateTenant(tenantID); err != nil {
		return Visit{}, err
	}
	v := Visit{tenant: tenantID, rates: make([]counted, len(rates))}
	for i, r := range rates {
		if err := r.validate(); err != nil {
			return Visit{}, err
		}
		v.rates[i] = newCounted(r)
	}
	if spend != nil {
		if err := spend.validate(); err != nil {
			return Visit{}, err
		}
		v.spend = &presented{Redemption: *spend, wellFormed: spend.Token.WellFormed()}
		v.spend.hash = spend.Token.hash()
	}
	return v, nil
}

// validate accepts the texts that the database takes: one that it does not would fail for all of a group.
func (r *Redemption) validate() error {
	if err := validateText("purpose", r.Purpose, TextMax); err != nil {
		return err
	}
	if r.OrPurpose != "" {
		if err := validateText("or_purpose", r.OrPurpose, TextMax); err != nil {
			return err
		}
	}
	return validateText("subject", r.Subject, TextMax)
}

// Treatment says what is asked of a visit.
type Treatment uint8

// The treatments.
const (
	// Ignored: the visit is not let in, and counted nowhere.
	Ignored Treatment = iota
	// Counted: the visit is counted in its rates; its token stays as it is.
	Counted
	// Guarded: the visit is counted and its token is spent.
	Guarded
)

// Entry is what came of a visit.
type Entry struct {
	// Err is nil if the visit was let in. Otherwise nothing was counted or spent for it: one of [ErrTokenRefused], which
	// goes before an [*OverRateError].
	Err error
	// Standings say how its rates stand right after, in their order; none if it was ignored.
	Standings []Standing
}
