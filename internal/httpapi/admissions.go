package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/tenants"
)

const (
	admissionHeader = "Admission-Token"
	customerHeader  = "Customer-Id"
)

// credentials adds the customer and the admission token of the HTTP request to
// the options of its call, while metering is on. An invalid token is not checked
// here: it is refused where one is required.
func (s *service) credentials(req *request, opts *holdfast.CallOpts) error {
	customer, given, err := singleHeader(req.http.Header, customerHeader)
	if err == nil && given {
		err = checkCustomerID(customerHeader, customer)
	}
	if err != nil {
		return err
	}
	opts.Customer = customer
	if !s.metered {
		return nil
	}
	opts.AdmissionToken, _, err = singleHeader(req.http.Header, admissionHeader)
	return err
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

// admissionJSON is a token that was minted.
type admissionJSON struct {
	Token     *string    `json:"token" doc:"The plaintext, which only the first response has; null in a repetition."`
	Subject   customerID `json:"subject"`
	VariantID *string    `json:"variant_id" doc:"The only variant that the token is valid for; null for any."`
	ExpiresAt time.Time  `json:"expires_at"`
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
			ttl, variant := admissionTTL, ""
			body := admissionJSON{Subject: b.Subject}
			if b.TTLSeconds != nil {
				ttl = *b.TTLSeconds
			}
			if b.VariantID != nil {
				variant = string(*b.VariantID)
				body.VariantID = &variant
			}
			minted, err := s.tenant(req).MintAdmission(ctx, string(b.Subject), variant, time.Duration(ttl)*time.Second, req.opts())
			body.ExpiresAt = minted.ExpiresAt.UTC()
			if minted.Token != "" {
				body.Token = &minted.Token // the one place that returns the plaintext
			}
			return req.respond(body, err)
		},
	}
}
