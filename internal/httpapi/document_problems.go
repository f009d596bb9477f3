package httpapi

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// responseHeaderDocs are the header fields of more than one operation.
var responseHeaderDocs = map[string]*huma.Header{
	correlationHeader:  {Description: "Identifies the request in the audit log, the logs and the traces.", Schema: &huma.Schema{Type: huma.TypeString}},
	"Retry-After":      {Description: "After how many whole seconds the request can be sent again.", Schema: &huma.Schema{Type: huma.TypeInteger}},
	"Allow":            {Description: "The methods of the path.", Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{"GET, HEAD, PUT"}}},
	"WWW-Authenticate": {Description: "The scheme of the key.", Schema: &huma.Schema{Type: huma.TypeString}},
	replayedHeader:     {Description: "true for a repetition of an earlier request.", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"true"}}},
	policyHeader: {
		Description: "The rate limits of the `tenant` and the `customer`, as far as they have one: draft-ietf-httpapi-ratelimit-headers-10. " +
			"With 202 and 200, except for a repetition, and with the problem `over_budget`.",
		Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{`"tenant";q=600;w=60, "customer";q=30;w=60`}},
	},
	limitHeader: {
		Description: "What remains of these limits, and after how many seconds more is available.",
		Schema:      &huma.Schema{Type: huma.TypeString, Examples: []any{`"tenant";r=599;t=1, "customer";r=29;t=2`}},
	},
}

// headerRef is one of responseHeaderDocs.
func headerRef(name string) *huma.Header { return &huma.Header{Ref: "#/components/headers/" + name} }

// failures returns the responses for the kinds of problem, one per status.
func (s *service) failures(kinds []kind) map[string]*huma.Response {
	byStatus := map[int][]kind{}
	for _, k := range kinds {
		if !slices.Contains(byStatus[k.status], k) {
			byStatus[k.status] = append(byStatus[k.status], k)
		}
	}
	responses := map[string]*huma.Response{}
	for status, of := range byStatus {
		responses[strconv.Itoa(status)] = s.failure(of)
	}
	return responses
}

// failure returns the response for kinds of problem of one status: their codes,
// with an example of each, and the header fields that they send.
func (s *service) failure(kinds []kind) *huma.Response {
	var lines []string
	var codes []any
	headers, examples := map[string]*huma.Header{correlationHeader: headerRef(correlationHeader)}, map[string]*huma.Example{}
	for _, k := range kinds {
		lines = append(lines, "`"+k.code+"`: "+k.detail+".")
		for name := range k.problem().header {
			if name == "Www-Authenticate" { // the canonical form of Go
				name = "WWW-Authenticate"
			}
			headers[name] = headerRef(name)
		}
		if k == forbidden { // which scope is needed
			headers["WWW-Authenticate"] = headerRef("WWW-Authenticate")
		}
		if k == methodNotAllowed {
			headers["Allow"] = headerRef("Allow")
		}
		if k == overBudget {
			headers[policyHeader], headers[limitHeader] = headerRef(policyHeader), headerRef(limitHeader)
		}
		if !slices.Contains(codes, any(k.code)) {
			codes = append(codes, k.code)
			examples[k.code] = s.example(k)
		}
	}
	for _, code := range codes {
		s.codes = append(s.codes, code.(string))
	}
	ref := s.schemas().Schema(reflect.TypeFor[problem](), true, "Problem")
	narrowed := &huma.Schema{AllOf: []*huma.Schema{ref, {
		Type: huma.TypeObject, Required: []string{"code"},
		Properties: map[string]*huma.Schema{"code": {Type: huma.TypeString, Enum: codes}},
	}}}
	return &huma.Response{
		Description: strings.Join(lines, "\n\n"), Headers: headers,
		Content: map[string]*huma.MediaType{(&problem{}).ContentType(""): {Schema: narrowed, Examples: examples}},
	}
}

// shareProblems moves the problems that several operations have into one place.
func (s *service) shareProblems() {
	kept, paths := map[string]*huma.Response{}, s.api.OpenAPI().Paths
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for _, op := range operationsOf(paths[path]) {
			for status, response := range op.Responses {
				media := response.Content[(&problem{}).ContentType("")]
				if media == nil || len(media.Schema.AllOf) == 0 { // huma's default
					continue
				}
				parts := []string{status}
				for _, code := range media.Schema.AllOf[1].Properties["code"].Enum {
					parts = append(parts, code.(string))
				}
				name := strings.Join(parts, "-")
				if kept[name] != nil && kept[name].Description != response.Description {
					continue // the same code for another reason
				}
				kept[name] = response
				op.Responses[status] = &huma.Response{Ref: "#/components/responses/" + name}
			}
		}
	}
	// No operation has this one: the path has none of the method.
	kept["405-"+methodNotAllowed.code] = s.failure([]kind{methodNotAllowed})
	s.api.OpenAPI().Components.Responses = kept
}

func operationsOf(item *huma.PathItem) (list []*huma.Operation) {
	for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
		if op != nil {
			list = append(list, op)
		}
	}
	return list
}

// example returns a reference to the problem's body as it is sent.
func (s *service) example(k kind) *huma.Example {
	kept := s.api.OpenAPI().Components.Examples
	name := k.code
	for n := 2; kept[name] != nil && kept[name].Value.(*problem).Detail != k.detail; n++ {
		name = k.code + "-" + strconv.Itoa(n)
	}
	kept[name] = &huma.Example{Summary: http.StatusText(k.status), Value: k.problem()}
	return &huma.Example{Ref: "#/components/examples/" + name}
}
