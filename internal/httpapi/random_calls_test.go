package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
)

// randomCalls makes calls from the document, with ids that earlier calls have
// returned.
type randomCalls struct {
	*shop
	*rand.Rand
	known map[string][]string // values by the name of their field
}

// Any sequence of calls is answered as the document says, never with 500, and
// breaks no invariant.
func TestRandomCalls(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := &randomCalls{shop: s, Rand: rand.New(rand.NewPCG(1, 2)), known: map[string][]string{
		"variant_id": {"shoe", "hat", "ebook", "hall", "mug"}, "block": {"hall"}, "cart_id": {"a", "b", "c"}, "to_cart_id": {"a", "b"}, "kit_id": {"set"},
		"group": {"all"}, "allotment_id": {"fans"}, "allotment": {"fans"}, "unit_id": {"s1", "s2", "s3"}, "unit_ids": {"s1", "s2", "s3", "s4"},
		"from": {"shoe"}, "to": {"hat"}, "customer_id": {"eve"},
	}}
	for _, variant := range []string{"shoe", "hat"} {
		s.stock(variant, `{"stock":200}`)
	}
	s.stock("ebook", `{"tracked":false}`)
	s.block("hall", 30)
	s.call(200, "PUT", "/v1/kits/set", `{"parts":[{"variant_id":"shoe","quantity":1},{"variant_id":"hat","quantity":2}]}`)
	s.call(200, "PUT", "/v1/stocks/shoe/allotments/fans", `{"quantity":20}`)
	paths := s.service.api.OpenAPI().Paths
	var sellable []string
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if strings.HasPrefix(path, "/v1/") && !strings.HasSuffix(path, "/events") && path != "/v1/live" {
			sellable = append(sellable, path)
		}
	}
	for n := range 2000 {
		path := c.oneOf(sellable)
		if c.IntN(3) == 0 {
			path = "/v1/carts/{cart_id}/items"
		}
		ops := operationsOf(paths[path])
		op := ops[c.IntN(len(ops))]
		if op.Method == http.MethodDelete && strings.HasPrefix(path, "/v1/carts") && c.IntN(2) == 0 {
			continue
		}
		c.do(op, path)
		if n%10 == 0 {
			s.decide()
		}
	}
	for _, lane := range []string{"hot", "normal"} {
		s.call(200, "PATCH", "/v1/lanes/"+lane, `{"paused":false,"rate_cap":null}`)
	}
	s.decide()
	s.sound()
	for _, action := range []string{"reservation.held", "reservation.committed", "reservation.released", "reservation.moved", "stock.set", "kit.set"} {
		if s.count(`SELECT count(*) FROM audit_log WHERE action = $1`, action) == 0 {
			t.Errorf("no call made the entry %s", action)
		}
	}
}

// do makes a call of the operation. Some of its values are not valid.
func (c *randomCalls) do(op *huma.Operation, path string) {
	query, headers := url.Values{}, []string(nil)
	for _, p := range op.Parameters {
		switch value := fmt.Sprint(c.value(p.Schema, p.Name)); {
		case p.In == "path":
			path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(value), 1)
		case c.IntN(3) > 0, p.Name == "wait", p.Name == "Prefer":
		case p.In == "query":
			query.Set(p.Name, value)
		default:
			headers = append(headers, p.Name, url.QueryEscape(value))
		}
	}
	var body io.Reader
	if op.RequestBody != nil {
		contentType := c.oneOf(slices.Sorted(maps.Keys(op.RequestBody.Content)))
		headers = append(headers, "Content-Type", contentType)
		value := any(c.oneOf([]string{"variant_id,stock\nhat,90\n", "unit_id\ns31\ns32\n", `{"variant_id":"shoe","stock":150}`, `{"unit_id":"s33"}`, "\"", ""}))
		if contentType == "application/json" {
			value = c.value(op.RequestBody.Content[contentType].Schema, "")
			if op.OperationID == "add-item" && c.IntN(4) > 0 {
				value = c.item()
			}
			encoded, err := json.Marshal(value)
			c.must(err)
			value = string(encoded)
		}
		body = strings.NewReader(value.(string))
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	r := c.send(op.Method, path, body, headers...)
	if r.status >= http.StatusInternalServerError {
		c.t.Errorf("%s %s: answered %d %s", op.Method, path, r.status, r.body)
	}
	var answer any
	if r.status < 300 && json.Unmarshal(r.body, &answer) == nil {
		c.remember(answer)
	}
}

// item is a body of add-item in one of its forms.
func (c *randomCalls) item() any {
	return json.RawMessage(c.oneOf([]string{
		`{"variant_id":"shoe","quantity":2}`, `{"variant_id":"hat","quantity":1}`, `{"variant_id":"shoe","quantity":1,"allotment":"fans"}`,
		`{"block":"hall","any_of":2}`, `{"block":"hall","unit_ids":["s1","s5"]}`, `{"kit_id":"set","quantity":1}`,
		`{"variant_id":"hat","quantity":150,"wait_for_stock":true}`,
		`{"lines":[{"variant_id":"shoe","quantity":1},{"block":"hall","any_of":1},{"kit_id":"set","quantity":1}],"partial":true}`,
	}))
}

func (c *randomCalls) oneOf(list []string) string { return list[c.IntN(len(list))] }

// remember keeps the ids of an answer.
func (c *randomCalls) remember(answer any) {
	switch answer := answer.(type) {
	case []any:
		for _, item := range answer {
			c.remember(item)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(answer)) {
			if id, ok := answer[name].(string); ok && strings.HasSuffix(name, "_id") && len(c.known[name]) < 200 {
				c.known[name] = append(c.known[name], id)
			}
			c.remember(answer[name])
		}
	}
}

// value is a value of the schema, mostly a valid one.
func (c *randomCalls) value(s *huma.Schema, name string) any {
	for s.Ref != "" {
		s = c.service.schemas().SchemaFromRef(s.Ref)
	}
	if c.IntN(60) == 0 {
		return []any{nil, true, -1, 1e20, "", "\u0001", strings.Repeat("x", 300), []any{}, map[string]any{}}[c.IntN(9)]
	}
	if alternatives := slices.Concat(s.OneOf, s.AnyOf); len(alternatives) > 0 && len(s.Properties) == 0 {
		return c.value(alternatives[c.IntN(len(alternatives))], name)
	}
	if known := c.known[name]; len(known) > 0 && s.Type == huma.TypeString && c.IntN(8) > 0 {
		return c.oneOf(known)
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[c.IntN(len(s.Enum))]
	case s.Format == "uuid":
		return uuid.UUID{byte(c.IntN(256)), 6: 0x70, 8: 0x80}
	case s.Format == "date-time":
		return c.oneOf([]string{"2020-01-01T00:00:00Z", "2090-01-01T00:00:00Z"})
	}
	switch s.Type {
	case huma.TypeObject:
		object := make(map[string]any)
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, field) || c.IntN(4) == 0 {
				object[field] = c.value(s.Properties[field], field)
			}
		}
		return object
	case huma.TypeArray:
		return []any{c.value(s.Items, name)}
	case huma.TypeInteger:
		least := 0.
		if s.Minimum != nil {
			least = max(*s.Minimum, -20)
		}
		return int64(least) + c.Int64N(8)
	case huma.TypeBoolean:
		return c.IntN(2) == 0
	default:
		return c.oneOf([]string{"x", "a/b", "é", "1"})
	}
}
