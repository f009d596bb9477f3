package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
)

// problem is the body of an error response: RFC 9457 problem details with a
// stable code. It has no type, which means about:blank, so its title is the
// text of the status.
type problem struct {
	Title  string `json:"title" doc:"The text of the HTTP status."`
	Status int    `json:"status" doc:"The HTTP status."`
	Detail string `json:"detail" doc:"What is wrong, for a person. The text may change."`
	Code   string `json:"code" doc:"What is wrong, for a program. Stable."`

	Errors []fieldError `json:"errors,omitempty" doc:"The fields that are not valid, with the code invalid."`
	// Violated is for over_budget, Scope for forbidden, Expected, Actual and
	// RetriedBy are for conflicting_state, Report and UnitsReport are for an
	// import that ended early.
	Violated    []string                    `json:"violated_policies,omitempty" doc:"The exhausted policies, by their names in RateLimit-Policy."`
	Scope       string                      `json:"scope,omitempty" doc:"The scope that the key lacks, the first one if one of several is needed."`
	Expected    string                      `json:"expected,omitempty" enum:"queued,processing,waiting,done,failed,held,committed,released,expired,validating,finalizing,compensated" doc:"The status that the request needs."`
	Actual      string                      `json:"actual,omitempty" enum:"queued,processing,waiting,done,failed,held,committed,released,expired,validating,finalizing,compensated" doc:"The status that was found."`
	RetriedBy   *uuid.UUID                  `json:"retried_by,omitempty" format:"uuid" doc:"The request that retries it already."`
	Report      *inventory.ImportReport     `json:"report,omitempty" doc:"What an import of stocks did before it ended early."`
	UnitsReport *inventory.UnitImportReport `json:"units_report,omitempty" doc:"What an import of units did before it ended early."`

	header http.Header
}

// fieldError is what is wrong with one field.
type fieldError struct {
	Field   string `json:"field" doc:"The field's name in the body, the query, the path or the header."`
	Message string `json:"message"`
}

// Error returns the problem's detail.
func (p *problem) Error() string { return p.Detail }

// GetStatus returns the problem's status, for huma.
func (p *problem) GetStatus() int { return p.Status }

// ContentType returns the media type of problem details, for huma.
func (p *problem) ContentType(string) string { return "application/problem+json" }

// kind is a kind of problem: its code, its HTTP status and its default detail.
type kind struct {
	code   string
	status int
	detail string
}

func (k kind) problem() *problem {
	p := &problem{Title: http.StatusText(k.status), Status: k.status, Detail: k.detail, Code: k.code, header: http.Header{}}
	switch k.status {
	case http.StatusUnauthorized:
		p.header.Set("WWW-Authenticate", `Bearer realm="holdfast"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if k != outcomeUnknown {
			p.header.Set("Retry-After", "1")
		}
	}
	return p
}

// response returns the problem as an HTTP response.
func (p *problem) response() response {
	resp := response{status: p.Status, body: encode(p)}.with("Content-Type", p.ContentType(""))
	for name := range p.header {
		resp = resp.with(name, p.header.Get(name))
	}
	return resp
}

// Misdirected refuses every call, for a service that answers only under the
// names of its own machine: 421 with the code misdirected (RFC 9110, section
// 15.5.20).
func Misdirected() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { misdirected.problem().response().write(w) })
}

// humaProblem makes the problem of an error that huma found: a parameter that
// is not valid.
func humaProblem(_ huma.Context, status int, message string, errs ...error) huma.StatusError {
	if status != http.StatusUnprocessableEntity {
		k := kind{code: "internal", status: status, detail: message}
		return k.problem()
	}
	var wrong fieldErrors
	for _, err := range errs {
		if detail, ok := err.(huma.ErrorDetailer); ok {
			_, field, _ := strings.Cut(detail.ErrorDetail().Location, ".")
			wrong = wrong.with(field, detail.ErrorDetail().Message)
		}
	}
	p := invalid.problem()
	p.Errors = wrong
	return p
}

// fieldErrors are the fields of a request that are not valid, each once.
type fieldErrors []fieldError

// Bounds of the fieldErrors of one response.
const (
	fieldErrorsMax = 20
	fieldNameMax   = 64 // bytes of a field's name
)

// with adds an error of a field, unless the field has one or there are
// fieldErrorsMax already.
func (f fieldErrors) with(field, message string) fieldErrors {
	if len(field) > fieldNameMax {
		field = strings.ToValidUTF8(field[:fieldNameMax], "") + "…"
	}
	known := slices.ContainsFunc(f, func(e fieldError) bool { return e.Field == field })
	if known || len(f) == fieldErrorsMax || !utf8.ValidString(field) {
		return f
	}
	return append(f, fieldError{Field: field, Message: message})
}

// Error lists the fields and what is wrong with them.
func (f fieldErrors) Error() string {
	var b strings.Builder
	b.WriteString("invalid fields")
	for _, e := range f {
		b.WriteString("; " + e.Field + " " + e.Message)
	}
	return b.String()
}
