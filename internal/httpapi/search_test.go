package httpapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/tenants"
)

// found returns what a search finds, as "kind id: summary".
func (s *shop) found(q string) (items []string) {
	s.t.Helper()
	var body searchJSON
	s.call(200, "GET", "/v1/ops/search?q="+q, "").decode(s.t, &body)
	for _, item := range body.Items {
		items = append(items, fmt.Sprintf("%s %s: %s", item.Kind, item.ID, item.Summary))
	}
	return items
}

// TestSearch finds carts, requests and reservations by their ids, and variants
// by the beginning of theirs. It finds nothing of another tenant.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, variant := range []string{"a", "ab", "ab%25", "a-b", "aB", "b", "%3Cscript%3Ealert(1)%3C%2Fscript%3E"} {
		s.stock(variant, `{"stock":3}`)
	}
	held, failed := s.add("ab", "a", 2), s.add("ab", "b", 9)
	s.decide()
	s.add("ab", "a", 1)
	s.key = s.newKey(s.tenant, tenants.ScopeOps)
	for q, want := range map[string][]string{
		"a": {
			"variant a: stock 3, reserved 2, available 1", "variant a-b: stock 3, reserved 0, available 3", "variant aB: stock 3, reserved 0, available 3",
			"variant ab: stock 3, reserved 0, available 3", "variant ab%: stock 3, reserved 0, available 3",
		},
		"ab": {
			"cart ab: 1 reservation, 1 undecided request, 1 failed request",
			"variant ab: stock 3, reserved 0, available 3", "variant ab%: stock 3, reserved 0, available 3",
		},
		"ab%25":             {"variant ab%: stock 3, reserved 0, available 3"},
		"%3Cscript":         {"variant <script>alert(1)</script>: stock 3, reserved 0, available 3"},
		"nothing":           nil,
		uuid.New().String(): nil,
		held: {
			"request " + held + ": done: 2 × a for cart ab", "reservation " + held + ": held: 2 × a for cart ab",
		},
		strings.ToUpper(failed): {"request " + failed + ": failed, out_of_stock: 9 × b for cart ab"},
	} {
		if got := s.found(q); !slices.Equal(got, want) {
			t.Errorf("%s finds %q, want %q", q, got, want)
		}
	}
	golden(t, "search", s.call(200, "GET", "/v1/ops/search?q="+held, ""))
	for _, query := range []string{"", "?q=", "?q=" + strings.Repeat("x", 129), "?q=a&q=b", "?q=%00"} {
		s.refused(invalid, "GET", "/v1/ops/search"+query, "")
	}
	_, s.key = s.newTenant("neighbour")
	for _, q := range []string{"ab", "a", held, failed} {
		if got := s.found(q); got != nil {
			t.Errorf("the neighbour finds %q", got)
		}
	}
}

// TestTimeline reads the histories of a cart, a request, a reservation and a
// variant.
func TestTimeline(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5}`)
	s.stock("sock", `{"stock":5}`)
	held, failed := s.add("c", "shirt", 2), s.add("c", "shirt", 9)
	s.add("c", "sock", 1)
	other := s.add("other", "shirt", 1)
	s.decide()
	s.call(200, "PUT", "/v1/lanes/hot/variants/shirt", "")
	s.call(200, "POST", "/v1/carts/c/checkout", "")
	s.key = s.newKey(s.tenant, tenants.ScopeOps)
	for _, tc := range []struct{ name, kind, id, want string }{
		{"cart", "cart", "c", "request.failed reservation.held reservation.held reservation.committed reservation.committed"},
		{"request", "request", failed, "request.failed"},
		{"reservation", "reservation", held, "reservation.held reservation.committed"},
		{"request_done", "request", held, "reservation.held reservation.committed"},
		{"variant", "variant", "shirt", "stock.set request.failed reservation.held reservation.held stock.set reservation.committed"},
	} {
		r := s.call(200, "GET", "/v1/ops/history?kind="+tc.kind+"&id="+tc.id, "")
		golden(t, "history_"+tc.name, r)
		var body struct{ Events []eventJSON }
		r.decode(t, &body)
		var got []string
		for _, e := range body.Events {
			got = append(got, e.Action)
		}
		slices.Sort(got)
		want := strings.Fields(tc.want)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", tc.name, got, want)
		}
	}
	s.refused(invalid, "GET", "/v1/ops/history?kind=request&id=c", "")
	s.refused(invalid, "GET", "/v1/ops/history?kind=nothing&id=c", "")
	for _, query := range []string{"kind=cart&id=unknown", "kind=variant&id=unknown", "kind=request&id=" + uuid.NewString(), "kind=reservation&id=" + uuid.NewString()} {
		s.refused(notFound, "GET", "/v1/ops/history?"+query, "")
	}
	own := s.key
	_, s.key = s.newTenant("neighbour")
	for _, query := range []string{"kind=cart&id=c", "kind=variant&id=shirt", "kind=request&id=" + failed, "kind=reservation&id=" + held} {
		s.refused(notFound, "GET", "/v1/ops/history?"+query, "")
	}

	// What is left once the rows are purged.
	s.key = own
	_, err := s.db.Exec(t.Context(), `DELETE FROM reservations WHERE reservation_id = $1`, other)
	s.must(err)
	r := s.call(200, "GET", "/v1/ops/history?kind=reservation&id="+other, "").object(t)
	if r["now"] != nil || len(r["events"].([]any)) != 1 {
		t.Errorf("a purged reservation has the history %v", r)
	}
}

// TestTimelineIsBounded checks that a history ends at its bound, with its
// newest events.
func TestTimelineIsBounded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	_, err := s.db.Exec(t.Context(), `
		INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after)
		SELECT a.tenant_id, a.target_id, 'stock.adjusted', 'system', jsonb_build_object('stock', n)
		FROM audit_log a, generate_series(1, 200) AS n`)
	s.must(err)
	var body struct {
		Events []struct {
			AuditID int64 `json:"audit_id"`
			Action  string
			After   json.RawMessage
		}
		More bool
	}
	s.call(200, "GET", "/v1/ops/history?kind=variant&id=shirt", "").decode(t, &body)
	if !body.More || len(body.Events) != timelineMax || body.Events[0].Action != "stock.adjusted" || string(body.Events[timelineMax-1].After) != `{"stock":200}` {
		t.Errorf("%d events from %s to %s, more: %t", len(body.Events), body.Events[0].After, body.Events[len(body.Events)-1].After, body.More)
	}

	// The older one is read by the audit_id of the first. No event is older.
	first := body.Events[0].AuditID
	for _, want := range []string{"stock.set", ""} {
		query := fmt.Sprintf("kind=variant&id=shirt&before=%d", first)
		s.call(200, "GET", "/v1/ops/history?"+query, "").decode(t, &body)
		var got string
		for _, e := range body.Events {
			got, first = got+e.Action, e.AuditID
		}
		if got != want || body.More {
			t.Errorf("%s has the events %q, more: %t, want %q", query, got, body.More, want)
		}
	}
	for _, before := range []string{"0", "-1", "x", "9223372036854775808"} {
		s.refused(invalid, "GET", "/v1/ops/history?kind=variant&id=shirt&before="+before, "")
	}
}
