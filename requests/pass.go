package requests

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast/holdfast/metered"
)

// Pass is what a submission shows to be let in.
type Pass struct {
	// Rates are what it is counted in, at most metered.RatesMax; none: it is not counted.
	Rates []metered.Rate
	// Token is the admission token presented, the zero value for none. It is spent only if the variant requires one.
	Token metered.Token
	// Subject is for whom a token must have been minted.
	Subject string
}

// ErrTokenRequired says that the variant requires an admission token and none was presented.
var ErrTokenRequired = errors.New("request: the variant requires an admission token")

// Unasked is the standing of a rate that nobody looked at, because another one had not enough left.
var Unasked = metered.Standing{Remaining: -1}

// anyAdmission is the purpose of a token that is good for every variant which requires one.
const anyAdmission = "admission"

// AdmissionPurpose is the purpose of the admission tokens of a variant; of all variants if variantID is empty.
func AdmissionPurpose(variantID string) string {
	if variantID == "" {
		return anyAdmission
	}
	return anyAdmission + ":" + variantID
}

// SubmitMetered is Submit for a caller who shows a pass: the request is counted in its rates, and where the variant
// requires an admission token the pass's is spent, in the transaction that queues the request. A Set of no more than the cart
// holds takes none. It returns how the rates stand then, in their order. A repetition of an earlier call is counted nowhere,
// spends nothing, and has no standings.
//
// Further errors, after which nothing is queued, counted or spent: *metered.OverRateError, with the standings, of which those
// that were not looked at are Unasked; ErrTokenRequired; one of metered.ErrTokenRefused; *metered.InvalidError. Where
// IntakeConfig.Metered is false it is Submit.
func (in *Intake) SubmitMetered(ctx context.Context, s Submission, p Pass) (View, []metered.Standing, error) {
	if err := s.prepare(ctx); err != nil {
		return View{}, nil, err
	}
	m := newMember(ctx, s)
	m.rates, m.shows = slices.Clone(p.Rates), !p.Token.IsZero()
	if in.config.Metered {
		var err error
		if m.visit, err = p.visit(&s); err != nil {
			return View{}, nil, err
		}
		if standings, why := in.notes.check(s.TenantID, p.Rates); why != nil {
			v, err := in.refuse(ctx, m, why)
			if !errors.Is(err, why) {
				standings = nil
			}
			return v, standings, err
		}
	}
	v, err := in.submit(ctx, m)
	return v, m.told(err), err
}

// visit is the pass at the turnstile.
func (p *Pass) visit(s *Submission) (metered.Visit, error) {
	var spend *metered.Redemption
	if !p.Token.IsZero() {
		spend = &metered.Redemption{
			Purpose: AdmissionPurpose(s.VariantID), OrPurpose: AdmissionPurpose(""), Subject: p.Subject, Token: p.Token,
		}
	}
	return metered.NewVisit(s.TenantID, p.Rates, spend)
}
