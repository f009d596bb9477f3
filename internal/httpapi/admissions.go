package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// Metering has the rate limits of the endpoints that queue a request, and mints
// admission tokens. The intake must have IntakeConfig.Metered, and the database
// the tables of package metered.
type Metering struct {
	// Tokens mints the tokens; required.
	Tokens *metered.TokenStore
	// Tenant is the rate limit of each tenant, Customer that of each customer.
	// A Limit of 0 means no limit. The API sets Scope and Amount.
	Tenant, Customer ratelimit.Rate
}

func (m *Metering) validate() error {
	if m == nil {
		return nil
	}
	if m.Tokens == nil {
		return errors.New("metering: a store of tokens is needed")
	}
	for _, r := range []ratelimit.Rate{m.Tenant, m.Customer} {
		if r.Limit != 0 && (r.Limit < 1 || r.Limit > ratelimit.RateLimitMax || r.Window < time.Second || r.Window > ratelimit.RateWindowMax) {
			return fmt.Errorf("metering: want a limit (%d) of 1 to %d and a window (%s) of 1s to %s", r.Limit, ratelimit.RateLimitMax, r.Window, ratelimit.RateWindowMax)
		}
	}
	return nil
}

const (
	admissionHeader = "Admission-Token"
	customerHeader  = "Customer-Id"
)

// credentials returns those of the HTTP request for a request of the cart, none
// while metering is off. Without a Customer-Id header the customer is the cart.
// An invalid token is not checked here: the intake refuses it where one is
// required.
func (s *service) credentials(req *request, cart string) (admission.Credentials, error) {
	if s.metering == nil {
		return admission.Credentials{}, nil
	}
	customer, given, err := singleHeader(req.http.Header, customerHeader)
	switch {
	case err != nil:
		return admission.Credentials{}, err
	case !given:
		customer = cart
	default:
		if err := checkCustomerID(customerHeader, customer); err != nil {
			return admission.Credentials{}, err
		}
	}
	token, _, err := singleHeader(req.http.Header, admissionHeader)
	if err != nil {
		return admission.Credentials{}, err
	}
	return admission.Credentials{Rates: s.metering.rates(customer), Token: metered.ParseToken(token), Subject: customer}, nil
}

// rates returns the rates that count a request of the customer.
func (m *Metering) rates(customer string) (rates []ratelimit.Rate) {
	if r := m.Tenant; r.Limit != 0 {
		r.Scope, r.Amount = policyTenant, 1
		rates = append(rates, r)
	}
	if r := m.Customer; r.Limit != 0 {
		r.Scope, r.Amount = policyCustomer+":"+customer, 1
		rates = append(rates, r)
	}
	return rates
}

type mintAdmissionBody struct {
	Subject    customerID `json:"subject" example:"customer-17"`
	VariantID  *variantID `json:"variant_id,omitempty" example:"shirt-m"`
	TTLSeconds *int32     `json:"ttl_seconds,omitempty" doc:"How long the token is valid; 600 if left out." example:"600"`
}

// Bounds of ttl_seconds.
const (
	admissionTTL    = int32(600)
	admissionTTLMax = int32(86400)
)

func (b *mintAdmissionBody) fields() []field {
	return []field{
		{"subject", true, into(&b.Subject, text[customerID](checkSubject))},
		{"variant_id", false, optional(&b.VariantID, text[variantID](checkVariantID))},
		{"ttl_seconds", false, optional(&b.TTLSeconds, whole[int32](1, admissionTTLMax))},
	}
}

// admissionJSON is a token that was minted. The form that is stored under an
// idempotency key is without the token.
type admissionJSON struct {
	Token     *string    `json:"token" doc:"The plaintext, which only the first response has; null in a repetition."`
	Subject   customerID `json:"subject"`
	VariantID *string    `json:"variant_id" doc:"The only variant that the token is valid for; null for any."`
	ExpiresAt time.Time  `json:"expires_at"`
}

func (a admissionJSON) redactForReplay() any {
	a.Token = nil
	return a
}

func (s *service) mintAdmission() endpoint[struct{}, mintAdmissionBody] {
	return endpoint[struct{}, mintAdmissionBody]{
		id: "mint-admission", method: http.MethodPost, path: "/v1/admissions", tag: tagAdmissions, scope: tenants.ScopeOps,
		summary: "Mint an admission token",
		doc: "Makes a token with which the subject can add units once: of the given variant, or of any variant whose stock has the admission " +
			"`token`. The request that adds them has the token in `" + admissionHeader + "`, and the subject in `" + customerHeader + "`, which is " +
			"the cart's id if left out.\n\nThe token is not stored. A repetition under the same idempotency key has null in its place: if the " +
			"first response was lost, mint another token under a new key.\n\nWithout `METERED_COMMANDS_ENABLED` this path does not exist.",
		responses: map[int]any{http.StatusOK: admissionJSON{}},
		problems:  []kind{notFound},
		handle: func(ctx context.Context, req *request, _ *struct{}, b *mintAdmissionBody) (response, error) {
			return s.runTx(ctx, req, func(ctx context.Context, tx pgx.Tx) (any, error) { return s.mintTx(ctx, tx, req, b) })
		},
	}
}

func (s *service) mintTx(ctx context.Context, tx pgx.Tx, req *request, b *mintAdmissionBody) (any, error) {
	ttl := admissionTTL
	if b.TTLSeconds != nil {
		ttl = *b.TTLSeconds
	}
	var variant *string
	purpose := admission.TokenPurpose("")
	if b.VariantID != nil {
		variant = new(string(*b.VariantID))
		if _, err := inventory.Get(ctx, tx, req.principal.TenantID, *variant); err != nil {
			return nil, err
		}
		purpose = admission.TokenPurpose(*variant)
	}
	minted, err := s.metering.Tokens.MintTx(ctx, tx, req.principal.TenantID, metered.Grant{
		Purpose: purpose, Subject: string(b.Subject), TTL: time.Duration(ttl) * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return admissionJSON{
		Token:   new(minted.Token.Plaintext()), // the one place that returns the plaintext
		Subject: b.Subject, VariantID: variant, ExpiresAt: minted.ExpiresAt.UTC(),
	}, nil
}
