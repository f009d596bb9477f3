package httpapi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// badBodies are invalid bodies for adding an item, with the wrong fields.
var badBodies = []struct {
	name, body string
	want       kind
	fields     string
}{
	{"negative", `{"variant_id":"shirt","quantity":-1}`, invalid, "quantity"},
	{"zero", `{"variant_id":"shirt","quantity":0}`, invalid, "quantity"},
	{"huge", `{"variant_id":"shirt","quantity":1000001}`, invalid, "quantity"},
	{"beyond int64", `{"variant_id":"shirt","quantity":99999999999999999999}`, invalid, "quantity"},
	{"beyond float64", `{"variant_id":"shirt","quantity":1e999}`, invalid, "quantity"},
	{"below float64", `{"variant_id":"shirt","quantity":-1e999}`, invalid, "quantity"},
	{"fraction", `{"variant_id":"shirt","quantity":1.5}`, invalid, "quantity"},
	{"tiny", `{"variant_id":"shirt","quantity":1e-9}`, invalid, "quantity"},
	{"missing", `{"variant_id":"shirt"}`, invalid, "quantity"},
	{"both missing", `{}`, invalid, "variant_id quantity"},
	{"no body", ``, invalid, "variant_id quantity"},
	{"null", `{"variant_id":null,"quantity":null}`, invalid, "variant_id quantity"},
	{"text for a number", `{"variant_id":"shirt","quantity":"1"}`, invalid, "quantity"},
	{"number for text", `{"variant_id":7,"quantity":1}`, invalid, "variant_id"},
	{"list for text", `{"variant_id":["shirt"],"quantity":1}`, invalid, "variant_id"},
	{"true for a number", `{"variant_id":"shirt","quantity":true}`, invalid, "quantity"},
	{"object for a number", `{"variant_id":"shirt","quantity":{}}`, invalid, "quantity"},
	{"unknown field", `{"variant_id":"shirt","quantity":1,"price":3}`, invalid, "price"},
	{"name in another case", `{"Variant_ID":"shirt","quantity":1}`, invalid, "Variant_ID variant_id"},
	{"field twice", `{"variant_id":"shirt","quantity":1,"quantity":2}`, invalid, "quantity"},
	{"empty id", `{"variant_id":"","quantity":1}`, invalid, "variant_id"},
	{"long id", `{"variant_id":"` + strings.Repeat("x", 129) + `","quantity":1}`, invalid, "variant_id"},
	{"NUL", `{"variant_id":"a\u0000b","quantity":1}`, invalid, "variant_id"},
	{"control character", `{"variant_id":"a\u0085b","quantity":1}`, invalid, "variant_id"},
	{"line feed", `{"variant_id":"a\nb","quantity":1}`, invalid, "variant_id"},
	{"half a pair", `{"variant_id":"\ud83d","quantity":1}`, invalid, "variant_id"},
	{"other half", `{"variant_id":"\udc00x","quantity":1}`, invalid, "variant_id"},
	{"two first halves", `{"variant_id":"\ud83d\ud83d","quantity":1}`, invalid, "variant_id"},
	{"invalid UTF-8", "{\"variant_id\":\"\xff\",\"quantity\":1}", malformed, ""},
	{"raw NUL", "{\"variant_id\":\"\x00\",\"quantity\":1}", malformed, ""},
	{"not JSON", `quantity=1`, malformed, ""},
	{"cut off", `{"variant_id":"shirt","quantity":1`, malformed, ""},
	{"two objects", `{"variant_id":"shirt","quantity":1}{}`, malformed, ""},
	{"trailing comma", `{"variant_id":"shirt","quantity":1,}`, malformed, ""},
	{"NaN", `{"variant_id":"shirt","quantity":NaN}`, malformed, ""},
	{"a list", `[]`, invalid, "body"},
	{"a word", `"shirt"`, invalid, "body"},
	{"null alone", `null`, invalid, "body"},
	{"deep", strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), malformed, ""},
	{"64 KiB and a byte", `{"variant_id":"` + strings.Repeat("x", 64<<10) + `","quantity":1}`, tooLarge, ""},
	{"1 MiB", strings.Repeat(" ", 1<<20), tooLarge, ""},
}

// TestBadBodies sends every kind of invalid body. Each is answered as
// documented, and writes nothing.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	before := s.written()
	for _, tc := range badBodies {
		t.Run(tc.name, func(t *testing.T) {
			p := s.refused(tc.want, "POST", "/v1/carts/c/items", tc.body)
			var fields []string
			for _, e := range p.Errors {
				fields = append(fields, e.Field)
			}
			if got := strings.Join(fields, " "); got != tc.fields {
				t.Errorf("the fields are %q, want %q", got, tc.fields)
			}
		})
	}
	golden(t, "invalid", s.call(422, "POST", "/v1/carts/c/items", `{"quantity":-1,"prize":1}`))
	golden(t, "malformed", s.call(400, "POST", "/v1/carts/c/items", `{`))
	golden(t, "too_large", s.call(413, "POST", "/v1/carts/c/items", strings.Repeat(" ", 1<<20)))
	if after := s.written(); after != before {
		t.Errorf("bad bodies wrote %d rows", after-before)
	}
	s.call(202, "POST", "/v1/carts/c/items", `{"variant_id":"`+strings.Repeat("ü", 128)+`","quantity":1000000}`)
	s.call(202, "POST", "/v1/carts/c/items", `{"variant_id":"\ud83d\ude00 \u0041\\u0000","quantity":1.0}`)
}

// TestBadBodiesElsewhere sends the other calls invalid values of the fields
// that only they have.
func TestBadBodiesElsewhere(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	before := s.written()
	const reservation = "/v1/reservations/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11"
	for _, tc := range []struct{ method, path, body, field string }{
		{"PUT", "/v1/stocks/shirt", `{"stock":-1}`, "stock"},
		{"PUT", "/v1/stocks/shirt", `{"stock":1000000001}`, "stock"},
		{"PUT", "/v1/stocks/shirt", `{"stock":null}`, "stock"},
		{"PUT", "/v1/stocks/shirt", `{"stock":"5"}`, "stock"},
		{"PUT", "/v1/stocks/shirt", `{"tracked":1}`, "tracked"},
		{"PUT", "/v1/stocks/shirt", `{"backorder":null}`, "backorder"},
		{"PUT", "/v1/stocks/shirt", `{"hold_ttl_seconds":2592001}`, "hold_ttl_seconds"},
		{"PUT", "/v1/stocks/shirt", `{"max_per_cart":-1}`, "max_per_cart"},
		{"PUT", "/v1/stocks/shirt", `{"lane":"fast"}`, "lane"},
		{"PUT", "/v1/stocks/shirt", `{"admission":"none"}`, "admission"},
		{"PUT", "/v1/stocks/shirt", `{"reserved":0}`, "reserved"},
		{"PUT", "/v1/stocks/new", `{}`, "stock"},
		{"PUT", "/v1/stocks/new", `{"lane":"hot"}`, "stock"},
		{"POST", "/v1/stocks/shirt/adjust", `{"delta":0}`, "delta"},
		{"POST", "/v1/stocks/shirt/adjust", `{}`, "delta"},
		{"POST", "/v1/stocks/shirt/adjust", `{"delta":1000000001}`, "delta"},
		{"POST", "/v1/stocks/shirt/adjust", `{"delta":999999999}`, "delta"},
		{"POST", "/v1/stocks/shirt/adjust", `{"delta":1,"reason":"a\u0000"}`, "reason"},
		{"POST", "/v1/stocks/shirt/adjust", `{"delta":1,"reason":"a\u0085"}`, "reason"},
		{"POST", "/v1/stocks/shirt/adjust", `{"delta":1,"reason":"` + strings.Repeat("x", 256) + `"}`, "reason"},
		{"PATCH", "/v1/carts/c/items/shirt", `{"quantity":0}`, "quantity"},
		{"PATCH", "/v1/carts/c/items/shirt", `{"quantity":1,"variant_id":"shirt"}`, "variant_id"},
		{"POST", "/v1/carts/c/extend", `{"seconds":0}`, "seconds"},
		{"POST", "/v1/carts/c/extend", `{"seconds":2147483648}`, "seconds"},
		{"POST", "/v1/carts/c/extend", ``, "seconds"},
		{"POST", "/v1/carts/c/checkout", `{"now":true}`, "now"},
		{"POST", reservation + "/release", `{"reason":"ttl"}`, "reason"},
		{"POST", reservation + "/release", `{"reason":"replaced"}`, "reason"},
		{"POST", reservation + "/extend", `{"seconds":-5}`, "seconds"},
		{"POST", reservation + "/commit", `{"x":1}`, "x"},
		{"PATCH", "/v1/lanes/hot", `{"paused":"yes"}`, "paused"},
		{"PATCH", "/v1/lanes/hot", `{"rate_cap":0}`, "rate_cap"},
		{"GET", "/v1/stocks?limit=0", ``, "limit"},
		{"GET", "/v1/stocks?limit=501", ``, "limit"},
		{"GET", "/v1/stocks?limit=x", ``, "limit"},
		{"GET", "/v1/stocks?cursor=x", ``, "cursor"},
		{"GET", "/v1/stocks?page=2", ``, "page"},
		{"GET", "/v1/requests/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11?wait=0", ``, "wait"},
		{"GET", "/v1/requests/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11?wait=31", ``, "wait"},
		{"GET", "/v1/requests/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11?wait=1.5", ``, "wait"},
		{"GET", "/v1/requests/42", ``, "request_id"},
		{"GET", "/v1/reservations/%00", ``, "reservation_id"},
	} {
		p := s.refused(invalid, tc.method, tc.path, tc.body)
		if len(p.Errors) != 1 || p.Errors[0].Field != tc.field {
			t.Errorf("%s %s %s: the fields are %v, want %s", tc.method, tc.path, tc.body, p.Errors, tc.field)
		}
	}
	if after := s.written(); after != before {
		t.Errorf("bad calls wrote %d rows", after-before)
	}
}

// TestMediaTypes checks that only JSON is accepted.
func TestMediaTypes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("ebook", `{"tracked":false}`)
	const path, body = "/v1/carts/c/items", `{"variant_id":"ebook","quantity":1}`
	for _, contentType := range []string{
		"text/plain", "application/x-www-form-urlencoded", "text/csv", "application/json-patch+json", "application/json; charset=latin1", ";",
	} {
		s.refused(unsupportedMedia, "POST", path, body, "Content-Type", contentType)
	}
	s.refused(unsupportedMedia, "POST", path, body, "Content-Encoding", "gzip")
	s.refused(unsupportedMedia, "POST", "/v1/stocks/import", body, "Content-Type", "application/json")
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON", ""} {
		s.call(200, "POST", path, body, "Content-Type", contentType)
	}
}

// FuzzBody checks that every body which the decoder accepts is valid and is
// decoded as by encoding/json.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		`{"variant_id":"shirt","quantity":2}`, `{"quantity":1e2,"variant_id":"\ud83d\ude00"}`, `{"variant_id":"\ud83d","quantity":1}`,
		`{"variant_id":"a","quantity":1,"quantity":1}`, `{"a":[{"b":null}],"quantity":-0.0}`, "{\"variant_id\":\"\xff\"}", `null`, ``, `{`, `{"variant_id":"\\ud83d","quantity":1}`,
		`{"block":"hall","unit_ids":["A1","A2"]}`, `{"block":"hall","any_of":4.0,"contiguous":true}`, `{"block":"hall","unit_ids":["A1",null],"any_of":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var b addItemBody
		if err := decodeObject(body, &b); err != nil {
			p := problemOf(err)
			if p.Code != malformed.code && (p.Code != invalid.code || len(p.Errors) == 0) {
				t.Fatalf("%q is %v", body, err)
			}
			encode(p)
			return
		}
		if b.Block == "" && (b.Quantity < 1 || b.Quantity > 1_000_000 || checkVariantID(string(b.VariantID)) != nil || !reflect.DeepEqual(b.UnitsWish, UnitsWish{})) {
			t.Fatalf("%q was decoded as %+v", body, b)
		}
		if b.Block != "" && (b.Quantity != 0 || b.VariantID != "" || checkBlockID(string(b.Block)) != nil || (b.AnyOf > 0) == (len(b.UnitIDs) > 0)) {
			t.Fatalf("%q was decoded as %+v", body, b)
		}
		var std struct {
			VariantID string   `json:"variant_id"`
			Quantity  float64  `json:"quantity"`
			UnitIDs   []string `json:"unit_ids"`
			AnyOf     float64  `json:"any_of"`
		}
		if err := json.Unmarshal(body, &std); err != nil || std.VariantID != string(b.VariantID) || std.Quantity != float64(b.Quantity) ||
			!slices.Equal(std.UnitIDs, b.UnitIDs) || std.AnyOf != float64(b.AnyOf) {
			t.Fatalf("%q was decoded as %+v, by encoding/json as %+v, %v", body, b, std, err)
		}
		var again addItemBody
		if err := decodeObject(encode(b), &again); err != nil || !reflect.DeepEqual(again, b) {
			t.Fatalf("%+v is decoded again as %+v, %v", b, again, err)
		}
		if bytes.Contains(encode(b), []byte{0}) {
			t.Fatalf("%q has a NUL", encode(b))
		}
	})
}

// The members of any JSON object are those that encoding/json reads, in their
// order, however the object is spaced.
func TestMembers(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`"`, `\`, `\"`, "}", "]", ":", ",", " {", "\\u007d"}))
	scalar := rapid.OneOf(rapid.Map(text, func(s string) any { return s }), rapid.Map(rapid.Float64Range(-1e9, 1e9), func(n float64) any { return n }),
		rapid.SampledFrom([]any{nil, true, false, 0}))
	value := rapid.OneOf(scalar, rapid.Map(rapid.SliceOf(scalar), func(l []any) any { return l }),
		rapid.Map(rapid.MapOf(text, scalar), func(m map[string]any) any { return []any{m, []any{m}} }))
	rapid.Check(t, func(t *rapid.T) {
		object, err := json.Marshal(rapid.MapOf(text, value).Draw(t, "object"))
		if err != nil {
			t.Fatal(err)
		}
		if space := rapid.SampledFrom([]string{"", " ", "\t", "\r"}).Draw(t, "space"); space != "" {
			var spaced bytes.Buffer
			if err := json.Indent(&spaced, object, space, space); err != nil {
				t.Fatal(err)
			}
			object = spaced.Bytes()
		}
		dec := json.NewDecoder(bytes.NewReader(object))
		if _, err := dec.Token(); err != nil {
			t.Fatal(err)
		}
		for name, value := range members(object) {
			wantName, err := dec.Token()
			if err != nil {
				t.Fatal(err)
			}
			var want json.RawMessage
			if err := dec.Decode(&want); err != nil {
				t.Fatal(err)
			}
			if name != wantName || !bytes.Equal(value, want) {
				t.Fatalf("%q has %q: %q, want %q: %q", object, name, value, wantName, want)
			}
		}
		if dec.More() {
			t.Fatalf("not all members of %q are read", object)
		}
	})
}
