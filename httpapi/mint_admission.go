package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

type mintAdmissionBody struct {
	Subject    customerID `json:"subject" example:"customer-17"`
	VariantID  *variantID `json:"variant_id,omitempty" example:"shirt-m"`
	TTLSeconds *int32     `json:"ttl_seconds,omitempty" minimum:"1" maximum:"86400" doc:"How long the token is good; 600 if left out." example:"600"`
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

// admissionJSON is a token that was minted. What is kept of it under an idempotency key lacks the token.
type admissionJSON struct {
	Token     *string    `json:"token" doc:"The plaintext, which is told this once; null in a repetition."`
	Subject   customerID `json:"subject"`
	VariantID *string    `json:"variant_id" doc:"The one variant that the token is good for; null for any."`
	ExpiresAt time.Time  `json:"expires_at"`
}

func (a admissionJSON) kept() any {
	a.Token = nil
	return a
}

func (s *service) mintAdmission() endpoint[struct{}, mintAdmissionBody] {
	return endpoint[struct{}, mintAdmissionBody]{
		id: "mint-admission", method: http.MethodPost, path: "/v1/admissions", tag: tagAdmissions, scope: tenants.ScopeOps,
		summary: "Mint an admission token",
		doc: "Makes a token with which the subject may add units once of a variant whose stock has the admission `token`: the one that is " +
			"named, or any. The add carries it in `" + admissionHeader + "`, and the subject in `" + customerHeader + "`, which is the cart's id if " +
			"left out.\n\nThe token is kept nowhere. A repetition under the same idempotency key has null for it: if the first answer was " +
			"lost, mint another under a new key.\n\nWithout `METERED_COMMANDS_ENABLED` there is no such path.",
		answers:  map[int]any{http.StatusOK: admissionJSON{}},
		problems: []kind{notFound},
		handle: func(ctx context.Context, c *call, _ *struct{}, b *mintAdmissionBody) (answer, error) {
			return s.finish(ctx, c, func(ctx context.Context, tx pgx.Tx) (any, error) { return s.mintTx(ctx, tx, c, b) })
		},
	}
}

func (s *service) mintTx(ctx context.Context, tx pgx.Tx, c *call, b *mintAdmissionBody) (any, error) {
	ttl := admissionTTL
	if b.TTLSeconds != nil {
		ttl = *b.TTLSeconds
	}
	var variant *string
	purpose := requests.AdmissionPurpose("")
	if b.VariantID != nil {
		variant = new(string(*b.VariantID))
		if _, err := inventory.Get(ctx, tx, c.who.TenantID, *variant); err != nil {
			return nil, err
		}
		purpose = requests.AdmissionPurpose(*variant)
	}
	minted, err := s.metering.Tokens.MintTx(ctx, tx, c.who.TenantID, metered.Grant{
		Purpose: purpose, Subject: string(b.Subject), TTL: time.Duration(ttl) * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return admissionJSON{
		Token:   new(minted.Token.Plaintext()), // the one place where the plaintext is told
		Subject: b.Subject, VariantID: variant, ExpiresAt: minted.ExpiresAt.UTC(),
	}, nil
}
