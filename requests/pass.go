package requests

import (
	"errors"

	"github.com/holdfast/holdfast/metered"
)

// Pass is what a submission shows to be let in.
type Pass struct {
	// Rates are what it is counted in, at most metered.RatesMax; none: it is not counted.
	Rates []metered.Rate
	// Token is the admission token presented, "" for none. It is spent only if the variant requires one.
	Token metered.Token
	// Subject is for whom a token must have been minted.
	Subject string
}

// ErrTokenRequired says that the variant requires an admission token and none was presented.
var ErrTokenRequired = errors.New("request: the variant requires an admission token")

// anyAdmission is the purpose of a token that is good for every variant which requires one.
const anyAdmission = "admission"

// AdmissionPurpose is the purpose of the admission tokens of a variant; of all variants if variantID is empty.
func AdmissionPurpose(variantID string) string {
	if variantID == "" {
		return anyAdmission
	}
	return anyAdmission + ":" + variantID
}
