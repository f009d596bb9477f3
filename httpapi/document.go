package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/requests"
)

// title and version stand in the OpenAPI document. The version is the API's, not the program's.
const (
	title   = "Holdfast"
	version = "1.0.0"
)

const introduction = `Reservations admitted under load. An add-to-cart is answered 202 at once, decided in order, held until a deadline, and
then committed, released or expired.

Every call carries ` + "`Authorization: Bearer hf_…`" + `, which names the tenant; the scope a call needs stands beside it.
Errors are problem details (RFC 9457) with a stable ` + "`code`" + `. Ids of variants and carts are 1 to 128 characters of UTF-8
without control characters, percent-encoded in paths: ` + "`rolls/buns`" + ` is ` + "`rolls%2Fbuns`" + `. Times are RFC 3339 in UTC.

` + "`Idempotency-Key`" + ` on a POST, PATCH or DELETE makes a repetition safe: it has one effect, and answers as the first did.
Only successful answers are kept; a call that failed is tried anew.`

// bearerScheme names the way keys are sent.
const bearerScheme = "key"

func blankDocument() *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: title, Version: version, Description: introduction,
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Tags: []*huma.Tag{
			{Name: tagStocks, Description: "How many units of a variant there are."},
			{Name: tagCarts, Description: "What a shopper wants: items are requested, held, and checked out together."},
			{Name: tagAdmissions, Description: "Tokens that let a customer add what requires one."},
			{Name: tagRequests, Description: "What was asked for, and what came of it."},
			{Name: tagReservations, Description: "Units held for a cart, by the reservation's own id."},
			{Name: tagLanes, Description: "The two ways to a decision, for the operator of the service."},
			{Name: tagService, Description: "The service itself. Open to everybody."},
		},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				bearerScheme: {Type: "http", Scheme: "bearer", BearerFormat: "hf_…", Description: "An API key, made by `holdfast keys create`."},
			},
		},
	}
}

// The groups of calls.
const (
	tagStocks       = "Stocks"
	tagCarts        = "Carts"
	tagAdmissions   = "Admissions"
	tagRequests     = "Requests"
	tagReservations = "Reservations"
	tagLanes        = "Lanes"
	tagService      = "Service"
)

// schemaName drops from a type's name what says that it is JSON.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	return strings.TrimSuffix(name, "JSON")
}

// operation is the endpoint as the document has it, but for its body.
func (e *endpoint[P, B]) operation(s *service) huma.Operation {
	op := huma.Operation{
		OperationID: e.id, Method: e.method, Path: e.path, Tags: []string{e.tag}, Summary: e.summary, Description: e.doc,
		Parameters: e.headers, Responses: map[string]*huma.Response{}, Security: []map[string][]string{},
	}
	problems := slices.Clone(e.problems)
	if e.scope != "" {
		op.Security = append(op.Security, map[string][]string{bearerScheme: {string(e.scope)}})
		op.Parameters = append(op.Parameters, headerParam(correlationHeader,
			"Names the call in the audit log, the logs and the traces; made if missing, and sent back.", requests.KeyMax))
		problems = append(problems, unauthorized, forbidden, invalid, internalError, overloaded)
	}
	if e.isKeyed() {
		op.Parameters = append(op.Parameters, headerParam(keyHeader, "Makes a repetition of the call safe.", requests.KeyMax))
		problems = append(problems, keyReused, outcomeUnknown)
	}
	if e.readsBody() || e.upload != nil {
		problems = append(problems, malformed, tooLarge, unsupportedMedia)
	}
	for status, body := range e.answers {
		op.DefaultStatus = max(op.DefaultStatus, status)
		op.Responses[strconv.Itoa(status)] = s.success(status, body, e.replies)
	}
	maps.Copy(op.Responses, s.failures(problems))
	return op
}

func headerParam(name, doc string, most int) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: doc, Schema: &huma.Schema{Type: huma.TypeString, MaxLength: &most}}
}

func (s *service) success(status int, body any, headers map[string]*huma.Param) *huma.Response {
	r := &huma.Response{Description: http.StatusText(status), Headers: headers}
	if body != nil {
		t := reflect.TypeOf(body)
		r.Content = map[string]*huma.MediaType{"application/json": {Schema: s.schemas().Schema(t, true, t.Name())}}
	}
	return r
}

// failures are the responses for the kinds of problem, one a status.
func (s *service) failures(kinds []kind) map[string]*huma.Response {
	responses := map[string]*huma.Response{}
	for _, k := range kinds {
		line := "`" + k.code + "`: " + k.detail + "."
		status := strconv.Itoa(k.status)
		if r := responses[status]; r != nil {
			if !strings.Contains(r.Description, line) {
				r.Description += "\n\n" + line
			}
			continue
		}
		responses[status] = &huma.Response{
			Description: line,
			Content: map[string]*huma.MediaType{
				(&problem{}).ContentType(""): {Schema: s.schemas().Schema(reflect.TypeFor[problem](), true, "Problem")},
			},
		}
	}
	return responses
}

// documentBody adds the endpoint's body to the document. Huma must not know of it before: it would read it.
func (e *endpoint[P, B]) documentBody(s *service) {
	content := e.upload
	body := reflect.TypeFor[B]()
	if e.readsBody() && body != reflect.TypeFor[none]() {
		ref := s.schemas().Schema(body, true, "")
		s.schemas().SchemaFromRef(ref.Ref).AdditionalProperties = false
		content = map[string]*huma.MediaType{"application/json": {Schema: ref}}
	}
	if content == nil {
		return
	}
	item := s.api.OpenAPI().Paths[e.path]
	for _, op := range []*huma.Operation{item.Put, item.Post, item.Patch} {
		if op != nil && op.OperationID == e.id {
			op.RequestBody = &huma.RequestBody{Required: true, Content: content}
		}
	}
}

func (s *service) schemas() huma.Registry { return s.api.OpenAPI().Components.Schemas }

// finishDocument writes the document down. What huma can't be told by tags is set right: lists are never null, and a null
// that a field may be stands among its words too.
func (s *service) finishDocument() error {
	for _, schema := range s.schemas().Map() {
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
