package httpapi

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// block makes a block of n seats: s1, s2 and so on, with the positions 1, 2 and
// so on.
func (s *shop) block(id string, n int) {
	s.t.Helper()
	var csv strings.Builder
	csv.WriteString("unit_id\n")
	for i := range n {
		fmt.Fprintf(&csv, "s%d\n", i+1)
	}
	s.call(200, "PUT", "/v1/units/"+id+"/import", csv.String(), "Content-Type", typeCSV)
}

// wish adds units of a block to a cart and returns the id of the request.
func (s *shop) wish(cart, body string) string {
	s.t.Helper()
	return s.call(202, "POST", "/v1/carts/"+cart+"/items", body).text(s.t, "request_id")
}

// outcome returns the status or the reason of a request, and the units of its
// reservation.
func (s *shop) outcome(request string) string {
	s.t.Helper()
	body := s.call(200, "GET", "/v1/requests/"+request, "").object(s.t)
	if body["reason"] != nil {
		return fmt.Sprint(body["reason"])
	}
	held, ok := body["reservation"].(map[string]any)
	if !ok {
		return fmt.Sprint(body["status"])
	}
	if got, want := fmt.Sprint(body["unit_ids"], body["block"]), fmt.Sprint(held["unit_ids"], held["block"]); got != want {
		s.t.Errorf("the request shows %s, its reservation %s", got, want)
	}
	return fmt.Sprint(held["status"], " ", held["unit_ids"])
}

func (s *shop) wantOutcome(request, want string) {
	s.t.Helper()
	if got := s.outcome(request); got != want {
		s.t.Errorf("the request is %s, want %s", got, want)
	}
}

// wantUnits checks the statuses of a block's units, one letter for each in the
// order of their ids, and that the counts of the block agree with them.
func (s *shop) wantUnits(block, want string) {
	s.t.Helper()
	var page unitPageJSON
	s.call(200, "GET", "/v1/units/"+block, "").decode(s.t, &page)
	var got []byte
	counts := map[byte]int64{}
	for _, u := range page.Items {
		letter := u.Status[0]
		got = append(got, letter)
		counts[letter]++
	}
	if string(got) != want {
		s.t.Errorf("the units are %s, want %s", got, want)
	}
	if page.Active != counts['a'] || page.Pending != counts['p'] || page.Inactive != counts['i'] {
		s.t.Errorf("the counts are %d, %d, %d: %s", page.Active, page.Pending, page.Inactive, got)
	}
}

// TestUnits imports a block, and holds, changes, removes and checks out its
// units.
func TestUnits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const imports = "/v1/units/hall/import"
	golden(t, "import_units", s.call(200, "PUT", imports, "unit_id,position\ns1,\ns2,\ns3,7\n,1\ns1,\n", "Content-Type", typeCSV))
	golden(t, "import_units_ndjson", s.call(200, "PUT", imports, `{"unit_id":"s4"}`+"\n"+`{"unit_id":"s5","position":"x"}`+"\n"+`{"unit_id":"s1"}`, "Content-Type", typeNDJSON))
	s.block("hall", 6)
	golden(t, "list_units", s.call(200, "GET", "/v1/units/hall?limit=2", ""))

	golden(t, "add_units_accepted", s.call(202, "POST", "/v1/carts/a/items", `{"block":"hall","unit_ids":["s5","s2"]}`))
	named := s.wish("b", `{"block":"hall","unit_ids":["s2"]}`)
	neighbours := s.wish("c", `{"block":"hall","any_of":2,"contiguous":true}`)
	golden(t, "get_cart_units_queued", s.call(200, "GET", "/v1/carts/c", ""))
	anyOne := s.wish("d", `{"block":"hall","any_of":1}`)
	golden(t, "get_request_units_queued", s.call(200, "GET", "/v1/requests/"+anyOne, ""))
	s.decide()
	golden(t, "get_cart_units", s.call(200, "GET", "/v1/carts/a", ""))
	golden(t, "get_request_units_done", s.call(200, "GET", "/v1/requests/"+neighbours, ""))
	golden(t, "get_request_units_failed", s.call(200, "GET", "/v1/requests/"+named, ""))
	s.wantOutcome(neighbours, "held [s3 s4]")
	s.wantOutcome(anyOne, "held [s1]")
	s.wantUnits("hall", "pppppa")
	golden(t, "get_reservation_units", s.call(200, "GET", "/v1/reservations/"+anyOne, ""))
	s.call(200, "POST", "/v1/reservations/"+anyOne+"/release", `{}`)
	golden(t, "reservation_history_units", s.call(200, "GET", "/v1/reservations/"+anyOne+"/history", ""))

	set := s.call(202, "PATCH", "/v1/carts/c/items/hall", `{"quantity":3}`).text(t, "request_id")
	s.decide()
	s.wantOutcome(set, "held [s1 s3 s4]") // it keeps its own
	set = s.call(202, "PATCH", "/v1/carts/c/items/hall", `{"quantity":1}`).text(t, "request_id")
	s.decide()
	s.wantOutcome(set, "held [s1]")
	s.wantUnits("hall", "ppaapa")
	if got := s.call(200, "DELETE", "/v1/carts/c/items/hall", "").object(t)["released"]; got != 1.0 {
		t.Errorf("released %v units", got)
	}
	golden(t, "checkout_units", s.call(200, "POST", "/v1/carts/a/checkout", ""))
	s.wantUnits("hall", "aiaaia")
	golden(t, "get_unit", s.call(200, "GET", "/v1/units/hall/s2", ""))
	history := s.call(200, "GET", "/v1/units/hall/s1", "").object(t)["history"].([]any)
	var actions []string
	for _, row := range history {
		actions = append(actions, row.(map[string]any)["action"].(string))
	}
	want := []string{"held", "released", "held", "released", "held", "released"} // d; c with 3 units; c with 1
	if diff := cmp.Diff(want, trimmed(actions)); diff != "" {
		t.Errorf("the history of s1 (-want +got):\n%s", diff)
	}
}

func trimmed(actions []string) (words []string) {
	for _, a := range actions {
		words = append(words, strings.TrimPrefix(a, "reservation."))
	}
	return words
}

// TestUnitsPlainForm adds units of a block by variant and quantity, and units of
// a counted variant as a block.
func TestUnitsPlainForm(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.block("hall", 3)
	s.stock("shirt", `{"stock":5}`)
	plain := s.add("a", "hall", 2)
	body := s.call(200, "GET", "/v1/requests/"+plain, "").object(t)
	for _, field := range []string{"block", "unit_ids", "any_of", "contiguous"} {
		if body[field] != nil {
			t.Errorf("%s is %v before the request is decided", field, body[field])
		}
	}
	wishes := map[string]string{
		s.wish("b", `{"block":"shirt","any_of":2}`):                   "unknown_variant",
		s.wish("b", `{"block":"shirt","unit_ids":["s1"]}`):            "unknown_variant",
		s.wish("b", `{"block":"shirt","any_of":1,"contiguous":true}`): "unknown_variant",
		s.wish("b", `{"block":"none","any_of":2}`):                    "unknown_variant",
		s.wish("b", `{"block":"none","unit_ids":["s1"]}`):             "unknown_variant",
		s.wish("b", `{"block":"hall","any_of":2}`):                    "out_of_stock",
		s.wish("b", `{"block":"hall","any_of":1,"contiguous":false}`): "held [s3]",
		plain: "held [s1 s2]",
	}
	s.decide()
	for id, want := range wishes {
		s.wantOutcome(id, want)
	}
	s.wantUnits("hall", "ppp")
	s.due("a")
	late := s.wish("e", `{"block":"hall","unit_ids":["s2","s1"]}`)
	s.decide()
	s.wantOutcome(late, "held [s1 s2]")
	s.wantOutcome(plain, "expired [s1 s2]")
}

// TestUnitsIdempotent repeats an addition under its key.
func TestUnitsIdempotent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.block("hall", 6)
	const path = "/v1/carts/a/items"
	first := s.call(202, "POST", path, `{"block":"hall","any_of":2,"contiguous":true}`, keyHeader, "k").text(t, "request_id")
	again := s.call(202, "POST", path, `{ "contiguous":true,"any_of":2.0,"block":"hall"}`, keyHeader, "k")
	if again.text(t, "request_id") != first || again.object(t)["any_of"] != 2.0 || again.object(t)["contiguous"] != true {
		t.Errorf("repeated: %s", again.body)
	}
	s.refused(keyReused, "POST", path, `{"block":"hall","any_of":2}`, keyHeader, "k")
	s.decide()
	again = s.call(200, "POST", path, `{"block":"hall","any_of":2,"contiguous":true}`, keyHeader, "k")
	if got := fmt.Sprint(again.object(t)["unit_ids"]); got != "[s1 s2]" {
		t.Errorf("repeated after the decision: %s", again.body)
	}
}

// unitWishes are bodies that are invalid, and their fields.
var unitWishes = []struct{ name, body, fields string }{
	{"both", `{"block":"hall","unit_ids":["s1"],"any_of":1}`, "any_of"},
	{"neither", `{"block":"hall"}`, "unit_ids"},
	{"no block", `{"unit_ids":["s1"]}`, "block"},
	{"no block, any", `{"any_of":1}`, "block"},
	{"only contiguous", `{"contiguous":true}`, "block unit_ids"},
	{"with a variant", `{"block":"hall","any_of":1,"variant_id":"hall"}`, "variant_id"},
	{"with a quantity", `{"block":"hall","any_of":1,"quantity":1}`, "quantity"},
	{"plain and contiguous", `{"variant_id":"hall","quantity":1,"contiguous":true}`, "variant_id quantity block unit_ids"},
	{"named and contiguous", `{"block":"hall","unit_ids":["s1"],"contiguous":true}`, "contiguous"},
	{"none", `{"block":"hall","any_of":0}`, "any_of"},
	{"below none", `{"block":"hall","any_of":-1}`, "any_of"},
	{"too many", `{"block":"hall","any_of":1001}`, "any_of"},
	{"a fraction", `{"block":"hall","any_of":1.5}`, "any_of"},
	{"an object", `{"block":"hall","any_of":{"block":"hall","count":1}}`, "any_of"},
	{"any of null", `{"block":"hall","any_of":null}`, "any_of"},
	{"any of twice", `{"block":"hall","any_of":1,"any_of":1}`, "any_of"},
	{"empty list", `{"block":"hall","unit_ids":[]}`, "unit_ids"},
	{"null", `{"block":"hall","unit_ids":null}`, "unit_ids"},
	{"no list", `{"block":"hall","unit_ids":"s1"}`, "unit_ids"},
	{"a number in the list", `{"block":"hall","unit_ids":["s1",2]}`, "unit_ids"},
	{"null in the list", `{"block":"hall","unit_ids":["s1",null]}`, "unit_ids"},
	{"half a pair", `{"block":"hall","unit_ids":["\ud83d"]}`, "unit_ids"},
	{"1001 units", `{"block":"hall","unit_ids":["s1"` + strings.Repeat(`,"s1"`, 1000) + `]}`, "unit_ids"},
	{"repeated", `{"block":"hall","unit_ids":["s1","s2","s1"]}`, "unit_ids[2]"},
	{"empty id", `{"block":"hall","unit_ids":["s1",""]}`, "unit_ids[1]"},
	{"long id", `{"block":"hall","unit_ids":["` + strings.Repeat("x", 129) + `"]}`, "unit_ids[0]"},
	{"control character", `{"block":"hall","unit_ids":["s1","a\u0000"]}`, "unit_ids[1]"},
	{"unknown", `{"block":"hall","unit_ids":["s1","s9","s8"]}`, "unit_ids[1]"},
	{"of another block", `{"block":"hall","unit_ids":["t1"]}`, "unit_ids[0]"},
	{"of another tenant", `{"block":"hall","unit_ids":["x1"]}`, "unit_ids[0]"},
	{"empty block", `{"block":"","any_of":1}`, "block"},
	{"dots", `{"block":"..","any_of":1}`, "block"},
	{"block null", `{"block":null,"any_of":1}`, "block"},
	{"text for contiguous", `{"block":"hall","any_of":1,"contiguous":"yes"}`, "contiguous"},
	{"unknown field", `{"block":"hall","any_of":1,"count":1}`, "count"},
	{"plain without a quantity", `{"variant_id":"hall"}`, "quantity"},
}

// TestBadUnits sends invalid wishes, imports and reads: each is refused with its
// field, and writes nothing.
func TestBadUnits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.block("hall", 3)
	s.stock("shirt", `{"stock":5}`)
	s.call(200, "PUT", "/v1/units/stalls/import", "unit_id\nt1\n", "Content-Type", typeCSV)
	own := s.key
	_, s.key = s.newTenant("another")
	s.call(200, "PUT", "/v1/units/hall/import", "unit_id\nx1\n", "Content-Type", typeCSV)
	s.refused(notFound, "GET", "/v1/units/stalls", "")
	s.refused(notFound, "GET", "/v1/units/hall/s1", "")
	s.key = own
	before := s.written() + s.count(`SELECT count(*) FROM postings`)
	for _, tc := range unitWishes {
		p := s.refused(invalid, "POST", "/v1/carts/c/items", tc.body)
		var fields []string
		for _, e := range p.Errors {
			fields = append(fields, e.Field)
		}
		if got := strings.Join(fields, " "); got != tc.fields {
			t.Errorf("%s: the fields are %q, want %q", tc.name, got, tc.fields)
		}
	}
	for _, tc := range []struct{ method, path, body, field string }{
		{"PUT", "/v1/stocks/hall", `{"stock":7}`, "stock"},
		{"PUT", "/v1/stocks/hall", `{"tracked":false}`, "tracked"},
		{"PUT", "/v1/stocks/hall", `{"backorder":true}`, "backorder"},
		{"POST", "/v1/stocks/hall/adjust", `{"delta":1}`, "variant_id"},
		{"GET", "/v1/units/hall?limit=0", "", "limit"},
		{"GET", "/v1/units/hall?limit=501", "", "limit"},
		{"GET", "/v1/units/hall?cursor=x", "", "cursor"},
		{"GET", "/v1/units/hall?status=active", "", "status"},
		{"GET", "/v1/units/%2E%2E", "", "block"},
		{"GET", "/v1/units/hall/%00", "", "unit_id"},
	} {
		p := s.refused(invalid, tc.method, tc.path, tc.body)
		if len(p.Errors) != 1 || p.Errors[0].Field != tc.field {
			t.Errorf("%s %s %s: the fields are %v, want %s", tc.method, tc.path, tc.body, p.Errors, tc.field)
		}
	}
	golden(t, "not_a_block", s.call(409, "PUT", "/v1/units/shirt/import", "unit_id\na\n", "Content-Type", typeCSV))
	s.refused(notABlock, "GET", "/v1/units/shirt", "")
	s.refused(notABlock, "GET", "/v1/units/shirt/a", "")
	s.refused(notFound, "GET", "/v1/units/none", "")
	s.refused(notFound, "GET", "/v1/units/none/a", "")
	s.refused(notFound, "GET", "/v1/units/hall/s9", "")
	golden(t, "import_units_bad_header", s.call(422, "PUT", "/v1/units/new/import", "unit,position\n", "Content-Type", typeCSV))
	s.refused(unsupportedMedia, "PUT", "/v1/units/new/import", "{}", "Content-Type", "application/json")
	s.refused(methodNotAllowed, "POST", "/v1/units/new/import", "unit_id\na\n", "Content-Type", typeCSV)
	if after := s.written() + s.count(`SELECT count(*) FROM postings`); after != before {
		t.Errorf("bad calls wrote %d rows", after-before)
	}
	s.call(200, "PUT", "/v1/stocks/hall", `{"hold_ttl_seconds":60,"max_per_cart":2,"tracked":true,"backorder":false,"lane":"hot"}`)
	over := s.wish("c", `{"block":"hall","any_of":3}`)
	s.decide()
	s.wantOutcome(over, "limit_exceeded")
	s.key = s.newKey(s.tenant, "cart")
	s.refused(forbidden, "GET", "/v1/units/hall", "")
	s.refused(forbidden, "PUT", "/v1/units/hall/import", "unit_id\na\n", "Content-Type", typeCSV)
}

// TestImportUnitsTooLong checks the report of an import whose body becomes too
// long.
func TestImportUnitsTooLong(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	line := `{"unit_id":"s1"` + strings.Repeat(" ", 60_000) + "}\n"
	body := io.MultiReader(strings.NewReader("{}\n"), &endless{line: line})
	p := s.isProblem(s.send("PUT", "/v1/units/hall/import", body, "Content-Type", typeNDJSON), tooLarge)
	if p.UnitsReport == nil || p.UnitsReport.Added != 1 || p.UnitsReport.Unchanged != 999 || p.UnitsReport.Rejected != 1 {
		t.Errorf("the report is %+v", p.UnitsReport)
	}
}

// TestUnitIDs takes every id that is valid, in a body and in a path.
func TestUnitIDs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ids := []string{`row/1`, `a "b", c`, `50%`, `é`, `..x`, `<&>`, `{}`, `\`}
	var lines strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&lines, "{\"unit_id\":%q}\n", id)
	}
	s.call(200, "PUT", "/v1/units/the%2Fhall/import", lines.String(), "Content-Type", typeNDJSON)
	request := s.wish("c", string(encode(map[string]any{"block": "the/hall", "unit_ids": ids})))
	s.decide()
	var held struct {
		UnitIDs []string `json:"unit_ids"`
	}
	s.call(200, "GET", "/v1/reservations/"+request, "").decode(t, &held)
	if !slices.Equal(held.UnitIDs, ids) {
		t.Errorf("held %q", held.UnitIDs)
	}
	for _, id := range ids {
		var unit unitDetailJSON
		s.call(200, "GET", "/v1/units/the%2Fhall/"+escapeSegment(id), "").decode(t, &unit)
		if string(unit.UnitID) != id || unit.Status != "pending_inactive" || unit.Reservation == nil || len(unit.History) != 1 {
			t.Errorf("%q is %+v", id, unit)
		}
	}
}

// TestPlainBodyCosts keeps the plain form of an added item as cheap as it was
// before there was another.
func TestPlainBodyCosts(t *testing.T) {
	body := []byte(`{"variant_id":"shirt-m","quantity":2}`)
	allocations := testing.AllocsPerRun(100, func() {
		var b addItemBody
		if err := decodeObject(body, &b); err != nil {
			t.Error(err)
		}
	})
	if allocations > 40 {
		t.Errorf("%v allocations", allocations)
	}
}

func BenchmarkPlainBody(b *testing.B) {
	body := []byte(`{"variant_id":"shirt-m","quantity":2}`)
	b.ReportAllocs()
	for b.Loop() {
		var item addItemBody
		if err := decodeObject(body, &item); err != nil {
			b.Fatal(err)
		}
	}
}
