package httpapi

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/inventory"
)

// TestStock sets, reads, adjusts and lists stocks.
func TestStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	golden(t, "stock_required", s.call(422, "PUT", "/v1/stocks/shirt", `{"tracked":true}`))
	golden(t, "put_stock", s.call(200, "PUT", "/v1/stocks/shirt",
		`{"stock":100,"tracked":true,"backorder":false,"hold_ttl_seconds":900,"max_per_cart":5,"lane":"hot"}`))
	golden(t, "put_stock_partly", s.call(200, "PUT", "/v1/stocks/shirt", `{"hold_ttl_seconds":null,"max_per_cart":0}`))
	golden(t, "adjust_stock", s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":-3,"reason":"damaged"}`))
	if got := s.rows(`SELECT reason FROM audit_log WHERE action = 'stock.adjusted'`); got[0] != "damaged" {
		t.Errorf("the audit row's reason is %q", got[0])
	}
	s.add("c", "shirt", 90)
	s.decide()
	golden(t, "below_reserved", s.call(409, "PUT", "/v1/stocks/shirt", `{"stock":89}`))
	s.refused(belowReserved, "POST", "/v1/stocks/shirt/adjust", `{"delta":-8}`)
	s.call(200, "PUT", "/v1/stocks/shirt", `{"stock":89,"backorder":true}`)

	for i := range 4 {
		s.stock(fmt.Sprintf("v%d", i), `{"stock":1}`)
	}
	page := s.call(200, "GET", "/v1/stocks?limit=3", "")
	golden(t, "list_stocks", s.call(200, "GET", "/v1/stocks?limit=1", ""))
	var ids []string
	for next := page; ; {
		body := next.object(t)
		for _, item := range body["items"].([]any) {
			ids = append(ids, item.(map[string]any)["variant_id"].(string))
		}
		cursor, more := body["next_cursor"].(string)
		if !more {
			break
		}
		next = s.call(200, "GET", "/v1/stocks?limit=3&cursor="+cursor, "")
	}
	if diff := cmp.Diff([]string{"shirt", "v0", "v1", "v2", "v3"}, ids); diff != "" {
		t.Errorf("all pages (-want +got):\n%s", diff)
	}
}

// TestLaneOfStock moves a variant by its stock's lane.
func TestLaneOfStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	lanes := func(body string) string {
		t.Helper()
		stock := s.call(200, "PUT", "/v1/stocks/shirt", body).object(t)
		return fmt.Sprint(stock["lane"], " ", stock["current_lane"])
	}
	for _, step := range []struct{ body, want string }{
		{`{"stock":5}`, "auto normal"},
		{`{"lane":"hot"}`, "hot hot"},
		{`{"lane":"hot"}`, "hot hot"},
		{`{"stock":6}`, "hot hot"},
		{`{"lane":"auto"}`, "auto normal"},
		{`{"lane":"hot","stock":7}`, "hot hot"},
		{`{"lane":"normal"}`, "normal normal"},
	} {
		if got := lanes(step.body); got != step.want {
			t.Errorf("%s: the stock's lane and the current one are %s, want %s", step.body, got, step.want)
		}
		s.decide() // ends the move of a variant
	}
	// A variant that the detector made hot stays hot, unless its stock is set
	// to normal.
	const byItselfSQL = `
		INSERT INTO hot_variants (tenant_id, variant_id, slot, state) VALUES ($1, 'shirt', 0, 'hot')
		ON CONFLICT (tenant_id, variant_id) DO UPDATE SET state = 'hot', pinned = false`
	if _, err := s.db.Exec(t.Context(), byItselfSQL, s.tenant.TenantID); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ body, want string }{
		{`{"lane":"auto"}`, "auto hot"},
		{`{"lane":"normal"}`, "normal normal"},
	} {
		if got := lanes(step.body); got != step.want {
			t.Errorf("%s: automatically hot, the stock's lane and the current one are %s, want %s", step.body, got, step.want)
		}
	}
	before := s.written()
	s.refused(invalid, "PUT", "/v1/stocks/new", `{"lane":"hot"}`)
	if s.written() != before {
		t.Error("a refused stock left a pin")
	}
}

// TestSomeStocks reads the stocks of a page of products in one call.
func TestSomeStocks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, id := range []string{"sock", "shirt", "rolls/buns", "hat", "a,b"} {
		s.stock(url.PathEscape(id), `{"stock":3}`)
	}
	s.call(200, "PUT", "/v1/stocks/shirt", `{"lane":"hot"}`)
	r := s.call(200, "GET", "/v1/stocks?variant_id=sock&variant_id=none&variant_id=rolls%2Fbuns&variant_id=a%2Cb&variant_id=shirt&variant_id=sock&variant_id=none", "")
	golden(t, "list_stocks_some", r)
	var ids []string
	for i := range inventory.SomeMax + 1 {
		ids = append(ids, fmt.Sprint("variant_id=v", i))
	}
	most := s.call(200, "GET", "/v1/stocks?"+strings.Join(ids[:inventory.SomeMax], "&"), "").object(t)
	if unknown := most["unknown"].([]any); len(unknown) != inventory.SomeMax || len(most["items"].([]any)) != 0 {
		t.Errorf("%d are unknown, want %d", len(unknown), inventory.SomeMax)
	}
	for _, query := range []string{strings.Join(ids, "&"), "variant_id=a&group=g", "variant_id=a&limit=1", "variant_id=a&cursor=b", "variant_id=.."} {
		if p := s.refused(invalid, "GET", "/v1/stocks?"+query, ""); p.Errors[0].Field != "variant_id" {
			t.Errorf("%s: the error names %q", query, p.Errors[0].Field)
		}
	}
}

// TestLaneRace has two concurrent callers repeatedly set different lanes. In
// the end the variant is in the lane of its stock.
func TestLaneRace(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5}`)
	for range 10 {
		var calls sync.WaitGroup
		for _, body := range []string{`{"lane":"hot"}`, `{"lane":"auto"}`, `{"lane":"hot"}`, `{"lane":"normal"}`} {
			calls.Go(func() {
				r, err := s.try("PUT", "/v1/stocks/shirt", strings.NewReader(body))
				if err != nil || r.status != 200 {
					t.Errorf("answered %d %s, %v", r.status, r.body, err)
				}
			})
		}
		calls.Wait()
		stock := s.call(200, "GET", "/v1/stocks/shirt", "").object(t)
		if (stock["lane"] == "hot") != (stock["current_lane"] == "hot") {
			t.Fatalf("the stock's lane is %v, the variant is %v", stock["lane"], stock["current_lane"])
		}
	}
}

// TestImport reads both formats, reports what it rejects, and moves variants
// between lanes.
func TestImport(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const path = "/v1/stocks/import"
	csv := "variant_id,stock,lane\nshirt,5,hot\nshoe,x,\n\"rolls/buns\",7,\n"
	golden(t, "import_csv", s.call(200, "POST", path, csv, "Content-Type", "text/csv; charset=utf-8"))
	ndjson := `{"variant_id":"hat","stock":3}` + "\n" + `{"variant_id":"shirt","lane":"auto"}` + "\n" + `{"variant_id":"none"}` + "\n"
	golden(t, "import_ndjson", s.call(200, "POST", path, ndjson, "Content-Type", "application/x-ndjson"))
	golden(t, "import_bad_header", s.call(422, "POST", path, "id,amount\n", "Content-Type", "text/csv"))
	got := s.rows(`SELECT concat_ws(' ', variant_id, stock, lane) FROM inventory_stocks ORDER BY 1`)
	if diff := cmp.Diff([]string{"hat 3 auto", "rolls/buns 7 auto", "shirt 5 auto"}, got); diff != "" {
		t.Errorf("stocks (-want +got):\n%s", diff)
	}
	if lane := s.call(200, "GET", "/v1/stocks/shirt", "").text(t, "current_lane"); lane != "normal" {
		t.Errorf("shirt is %s again, want normal", lane)
	}
}

// TestImportKey imports once under one key.
func TestImportKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const path, csv = "/v1/stocks/import", "variant_id,stock\nshirt,5\n"
	first := s.call(200, "POST", path, csv, "Content-Type", "text/csv", keyHeader, "i")
	s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":-1}`)
	again := s.call(200, "POST", path, csv, "Content-Type", "text/csv", keyHeader, "i")
	if !bytes.Equal(first.body, again.body) || again.header.Get(replayedHeader) != "true" {
		t.Errorf("the replay is %s, the first was %s", again.body, first.body)
	}
	s.refused(keyReused, "POST", path, csv+"hat,1\n", "Content-Type", "text/csv", keyHeader, "i")
	if got := s.rows(`SELECT concat_ws(' ', variant_id, stock) FROM inventory_stocks`); len(got) != 1 || got[0] != "shirt 4" {
		t.Errorf("stocks %v, want shirt 4: imported once", got)
	}
	for _, r := range s.atOnce(5, "POST", path, "variant_id,stock\nhat,1\n", "Content-Type", "text/csv", keyHeader, "at once") {
		if r.status != 200 || !strings.HasPrefix(string(r.body), `{"imported":1,"rejected":0`) {
			t.Errorf("answered %d %s", r.status, r.body)
		}
	}
}

// TestImportTooLong checks the report of an import whose body becomes too long.
func TestImportTooLong(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	line := `{"variant_id":"shirt","stock":5` + strings.Repeat(" ", 60_000) + "}\n"
	body := io.MultiReader(strings.NewReader("{}\n"), &endless{line: line})
	p := s.isProblem(s.send("POST", "/v1/stocks/import", body, "Content-Type", "application/x-ndjson"), tooLarge)
	if p.Report == nil || p.Report.Imported != 1000 || p.Report.Rejected != 1 {
		t.Errorf("the report is %+v", p.Report)
	}
}

// endless repeats one line.
type endless struct {
	line string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.line[e.at:])
	e.at = (e.at + n) % len(e.line)
	return n, nil
}
