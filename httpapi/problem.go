package httpapi

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/reservations"
)

// problem is an error as it is answered: RFC 9457 problem details with a stable code. It has no type, which stands for
// about:blank, so its title is the status in words.
type problem struct {
	Title  string `json:"title" doc:"The status in words."`
	Status int    `json:"status" doc:"The HTTP status."`
	Detail string `json:"detail" doc:"What went wrong, for a person. May change at any time."`
	Code   string `json:"code" doc:"What went wrong, for a program. Stable."`

	Errors []fieldError `json:"errors,omitempty" doc:"What is wrong with which field, for the code invalid."`
	// Violated goes with over_budget, Scope with forbidden, Expected and Actual with conflicting_state, Report with an import that ended early.
	Violated []string                `json:"violated_policies,omitempty" doc:"The policies that had not enough left, as RateLimit-Policy names them."`
	Scope    string                  `json:"scope,omitempty" doc:"The scope that the key lacks."`
	Expected reservations.Status     `json:"expected,omitempty" doc:"The status that the call needs."`
	Actual   reservations.Status     `json:"actual,omitempty" doc:"The status that was found."`
	Report   *inventory.ImportReport `json:"report,omitempty" doc:"What an import had done when it ended early."`

	header http.Header
}

// fieldError says what is wrong with one field.
type fieldError struct {
	Field   string `json:"field" doc:"The field's name in the body, the query, the path or the header."`
	Message string `json:"message"`
}

// Error is the problem's detail.
func (p *problem) Error() string { return p.Detail }

// GetStatus is the problem's status; huma asks.
func (p *problem) GetStatus() int { return p.Status }

// ContentType is that of problem details; huma asks.
func (p *problem) ContentType(string) string { return "application/problem+json" }

// kind is a kind of problem.
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

// answer is the problem as it is sent.
func (p *problem) answer() answer {
	p.header.Set("Content-Type", p.ContentType(""))
	return answer{status: p.Status, header: p.header, body: encode(p)}
}

// humaProblem is what huma calls an error of its own: a parameter that can't be read.
func humaProblem(_ huma.Context, status int, message string, errs ...error) huma.StatusError {
	if status != http.StatusUnprocessableEntity {
		k := kind{code: "internal", status: status, detail: message}
		return k.problem()
	}
	var wrong faults
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
