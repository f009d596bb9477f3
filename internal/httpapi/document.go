package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/internal/requestrows"
)

// title is the OpenAPI document's. notReleased is its version in a program that
// was built without one.
const (
	title       = "Holdfast"
	notReleased = "0.0.0"
)

const introduction = `Reservations admitted under load. The response to an add-to-cart is 202 at once. Requests are decided in order. What is
granted is held until a deadline, then committed, released or expired.

Every request has ` + "`Authorization: Bearer hf_…`" + `, which identifies the tenant. Each operation lists the scope that it needs.
Errors are problem details (RFC 9457) with a stable ` + "`code`" + `. Ids of variants, carts, blocks and units are 1 to 128 characters of UTF-8
without control characters, not only dots and not only slashes. In paths they are percent-encoded: ` + "`rolls/buns`" + ` is
` + "`rolls%2Fbuns`" + `. Times are RFC 3339 in UTC.

` + "`Idempotency-Key`" + ` on a POST, PATCH or DELETE makes a repetition safe: it has no further effect and gets the first response.
Only successful responses are stored; a request that failed runs again.`

// bearerScheme is the name of the security scheme.
const bearerScheme = "key"

func blankDocument(version string) *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: title, Version: cmp.Or(version, notReleased), Description: introduction,
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Tags: []*huma.Tag{
			{Name: tagStocks, Description: "How many units of a variant there are."},
			{Name: tagUnits, Description: "Units with their own identity, such as seats. A block of them is a variant."},
			{Name: tagCarts, Description: "Items that a shopper requests, holds and checks out together."},
			{Name: tagCheckouts, Description: "Checkouts that wait for a payment before they commit."},
			{Name: tagAdmissions, Description: "Tokens for customers to add variants that require one."},
			{Name: tagRequests, Description: "Requests for units, and their outcomes."},
			{Name: tagReservations, Description: "Units held for a cart, by the reservation's own id."},
			{Name: tagLanes, Description: "The hot and the normal lane, for the operator of the service."},
			{Name: tagLive, Description: "Read models that are sent while they change."},
			{Name: tagOps, Description: "What the dashboard of an operator shows."},
			{Name: tagService, Description: "The service itself. No key is needed."},
		},
		Servers: []*huma.Server{{URL: "http://localhost:8080", Description: "make run"}},
		Components: &huma.Components{
			Headers:  responseHeaderDocs,
			Examples: map[string]*huma.Example{},
			Schemas:  huma.NewMapRegistry("#/components/schemas/", schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				bearerScheme: {Type: "http", Scheme: "bearer", BearerFormat: "hf_…", Description: "An API key, made by `holdfast keys create`."},
			},
		},
	}
}

// The tags of operations.
const (
	tagStocks       = "Stocks"
	tagUnits        = "Units"
	tagCarts        = "Carts"
	tagCheckouts    = "Checkouts"
	tagAdmissions   = "Admissions"
	tagRequests     = "Requests"
	tagReservations = "Reservations"
	tagLanes        = "Lanes"
	tagLive         = "Live"
	tagService      = "Service"
)

// schemaName returns a type's name without the suffix JSON.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	return strings.TrimSuffix(name, "JSON")
}

// operation documents the endpoint, except for its request body.
func (e *endpoint[P, B]) operation(s *service) huma.Operation {
	op := huma.Operation{
		OperationID: e.id, Method: e.method, Path: e.path, Tags: []string{e.tag}, Summary: e.summary, Description: e.doc,
		Parameters: e.requestHeaders, Responses: map[string]*huma.Response{}, Security: []map[string][]string{},
	}
	problems := slices.Clone(e.problems)
	if e.scope != "" {
		for _, scope := range e.scopes() { // one of them suffices
			names := []string{string(scope)}
			if scope == anyScope {
				names = []string{}
			}
			op.Security = append(op.Security, map[string][]string{bearerScheme: names})
		}
		op.Parameters = append(op.Parameters, headerParam(correlationHeader,
			"Identifies the request in the audit log, the logs and the traces. It is made if missing, and sent back.", requestrows.KeyMax))
		problems = append(problems, unauthorized, forbidden, invalid, internalError, overloaded, cellUnavailable, tenantMoving)
	}
	if e.isKeyed() {
		op.Parameters = append(op.Parameters, headerParam(keyHeader, "Makes a repetition of the request safe.", requestrows.KeyMax))
		problems = append(problems, keyReused, outcomeUnknown)
	}
	if e.readsBody() || e.upload != nil {
		problems = append(problems, malformed, tooLarge, unsupportedMedia)
	}
	for status, body := range e.responses {
		op.DefaultStatus = max(op.DefaultStatus, status)
		op.Responses[strconv.Itoa(status)] = s.success(status, body, e.headers())
	}
	maps.Copy(op.Responses, s.failures(problems))
	return op
}

// headers are the header fields of its responses of success.
func (e *endpoint[P, B]) headers() map[string]*huma.Header {
	headers := map[string]*huma.Header{correlationHeader: headerRef(correlationHeader)}
	if e.scope != "" && e.isKeyed() {
		headers[replayedHeader] = headerRef(replayedHeader)
	}
	maps.Copy(headers, e.responseHeaders)
	return headers
}

func headerParam(name, doc string, most int) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: doc, Schema: &huma.Schema{Type: huma.TypeString, MaxLength: &most}}
}

func (s *service) success(status int, body any, headers map[string]*huma.Param) *huma.Response {
	r := &huma.Response{Description: http.StatusText(status), Headers: headers}
	switch body := body.(type) {
	case nil:
	case eventsOf:
		r.Content = body.media(s.schemas())
	default:
		t := reflect.TypeOf(body)
		r.Content = map[string]*huma.MediaType{"application/json": {Schema: s.schemas().Schema(t, true, t.Name())}}
	}
	return r
}

// documentBody adds the endpoint's request body to the document. It is not part
// of the registered operation, because huma would then read the body.
func (e *endpoint[P, B]) documentBody(s *service) {
	content, required := e.upload, e.upload != nil
	body := reflect.TypeFor[B]()
	if e.readsBody() && body != reflect.TypeFor[emptyBody]() {
		ref := s.schemas().Schema(body, true, "")
		schema := s.schemas().SchemaFromRef(ref.Ref)
		schema.AdditionalProperties = false
		p := any(new(B)).(payload)
		describe(schema, allFields(p))
		required = len(schema.Required) > 0
		if other, ok := p.(otherForm); ok {
			other.describeForms(schema)
			required = true
		}
		content = map[string]*huma.MediaType{"application/json": {Schema: ref}}
	}
	if content == nil {
		return
	}
	item := s.api.OpenAPI().Paths[e.path]
	for _, op := range []*huma.Operation{item.Put, item.Post, item.Patch} {
		if op != nil && op.OperationID == e.id {
			op.RequestBody = &huma.RequestBody{Required: required, Content: content}
		}
	}
}

// describe adds the limits of the fields to the schema of their body. It panics
// unless the body's struct has exactly these fields.
func describe(schema *huma.Schema, fields []field) {
	if len(fields) != len(schema.Properties) {
		panic(fmt.Sprintf("httpapi: a body of %d fields reads %d", len(schema.Properties), len(fields)))
	}
	schema.Required = nil
	for _, f := range fields {
		property := schema.Properties[f.name]
		if property == nil {
			panic(fmt.Sprintf("httpapi: %q is read and is not in the body", f.name))
		}
		if f.required {
			schema.Required = append(schema.Required, f.name)
		}
		if f.describe != nil {
			f.describe(property)
		}
	}
}

func (s *service) schemas() huma.Registry { return s.api.OpenAPI().Components.Schemas }

// finishDocument encodes the document. It corrects what huma's tags can't
// state: lists are never null, an enum of a nullable field includes null, and an
// answer has no fields that are not documented.
func (s *service) finishDocument() error {
	if err := s.addExamples(); err != nil {
		return err
	}
	s.shareProblems()
	s.schemas().Map()["Problem"].Properties["code"].Enum = enum(slices.Compact(slices.Sorted(slices.Values(s.codes))))
	for _, schema := range s.schemas().Map() {
		if schema.AdditionalProperties == true {
			schema.AdditionalProperties = nil
		}
		for _, property := range schema.Properties {
			if property.Type == huma.TypeArray {
				property.Nullable = false
			}
			if property.Nullable && len(property.Enum) > 0 && !slices.Contains(property.Enum, nil) {
				property.Enum = append(property.Enum, nil)
			}
		}
	}
	document, err := json.Marshal(s.api.OpenAPI())
	if err != nil {
		return fmt.Errorf("write the OpenAPI document: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, document, "", "  "); err != nil {
		return fmt.Errorf("write the OpenAPI document: %w", err)
	}
	b.WriteByte('\n')
	s.document = b.Bytes()
	return nil
}
