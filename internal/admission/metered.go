package admission

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

// Credentials are the rates in which a metered submission is counted, and the
// token that it spends.
type Credentials struct {
	// Rates are the rates in which the submission is counted, at most 4. If
	// empty, it is not counted.
	Rates []ratelimit.Rate
	// Token is the admission token that the caller presents, the zero value for
	// none. It is spent only if the variant requires a token.
	Token metered.Token
	// Subject is the subject for which the token must have been minted.
	Subject string
}

// ErrTokenRequired means that the variant requires an admission token and the
// caller presented none.
var ErrTokenRequired = errors.New("request: the variant requires an admission token")

// anyAdmission is the purpose of a token that is valid for all variants.
const anyAdmission = "admission"

// TokenPurpose returns the purpose of the admission tokens of a variant, or of
// all variants if variantID is empty.
func TokenPurpose(variantID string) string {
	if variantID == "" {
		return anyAdmission
	}
	return anyAdmission + ":" + variantID
}

// SubmitMetered is Submit for a caller with credentials. The transaction that
// queues the request also counts it in the rates of the credentials. If the
// variant requires an admission token, it spends theirs. A Set of no more than
// the cart holds needs no token, and neither does a retry of a failed request.
//
// It returns the states of the rates after the request was counted, in their
// order. A repetition of an earlier call is not counted, spends nothing, and
// has no states.
//
// Further errors, after which nothing is queued, counted or spent:
// *ratelimit.ExceededError; ErrTokenRequired; metered.ErrTokenRefused;
// *ratelimit.InvalidError and *invalid.Error. An ExceededError comes with the
// states; a state that was not read is UnknownState. If IntakeConfig.Metered is
// false, SubmitMetered is Submit.
func (in *Intake) SubmitMetered(ctx context.Context, s requestrows.Submission, c Credentials) (requests.View, []ratelimit.State, error) {
	if err := s.Prepare(ctx); err != nil {
		return requests.View{}, nil, err
	}
	w := newWaiter(ctx, s)
	w.rates, w.hasToken = slices.Clone(c.Rates), c.Token.Plaintext() != ""
	if in.config.Metered {
		var err error
		w.item, err = ratelimit.NewItem(s.TenantID, c.Rates)
		if err != nil {
			return requests.View{}, nil, err
		}
		if w.hasToken {
			w.token, err = c.present(&s)
		}
		if err != nil {
			return requests.View{}, nil, err
		}
		states, why := in.rates.lookup(time.Now(), s.TenantID, c.Rates)
		if why != nil {
			v, err := in.refuse(ctx, w, why)
			if !errors.Is(err, why) {
				states = nil
			}
			return v, states, err
		}
	}
	v, err := in.submit(ctx, w)
	return v, w.rateStates(err), err
}

// present returns the token of the credentials in the form that is redeemed for
// the submission.
func (c *Credentials) present(s *requestrows.Submission) (tokens.Presented, error) {
	return tokens.Present(c.Token.Plaintext(), tokens.Terms{
		TenantID: s.TenantID, Purpose: TokenPurpose(s.VariantID), OrPurpose: TokenPurpose(""), Subject: c.Subject,
	})
}
