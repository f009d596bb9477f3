package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// desk is an API whose answers the test determines.
type desk struct {
	*shopper
	findings *Findings
	tenant   *Tenant

	mu    sync.Mutex
	calls []*http.Request
}

// newDesk answers the nth call with answer(n).
func newDesk(t *testing.T, answer func(n int, w http.ResponseWriter)) *desk {
	t.Helper()
	d := &desk{findings: NewFindings(), tenant: &Tenant{ID: uuid.New(), Key: "hf_key"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		n := len(d.calls)
		d.calls = append(d.calls, r)
		d.mu.Unlock()
		answer(n, w)
	}))
	t.Cleanup(server.Close)
	api := &API{Name: "api", Address: strings.TrimPrefix(server.URL, "http://"), Down: func(time.Time, time.Time) time.Duration { return 0 }}
	traffic := New(Config{Tenants: []*Tenant{d.tenant}, APIs: []*API{api}, Shoppers: 1, Findings: d.findings})
	d.shopper = &shopper{Traffic: traffic, random: traffic.random(1)}
	return d
}

func problem(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"code":%q}`, code)
}

func (d *desk) request(key string) *Request {
	return &Request{Tenant: d.tenant, Cart: "cart", Variant: "shirt", Quantity: 1, Key: key, Correlation: newName("c")}
}

func (d *desk) rules() (rules []string) {
	for _, k := range d.findings.Kinds() {
		rules = append(rules, k.Name)
	}
	return rules
}

func (d *desk) header(name string) (values []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.calls {
		values = append(values, r.Header.Get(name))
	}
	return values
}

// A call with a key is sent again, unchanged, until it is answered.
func TestSettlesUnderItsKey(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	d := newDesk(t, func(n int, w http.ResponseWriter) {
		if n < 3 {
			problem(w, http.StatusServiceUnavailable, []string{"overloaded", "outcome_unknown", "not_ready"}[n])
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"request_id":%q,"status":"queued"}`, id)
	})
	q := d.request("key")
	if !d.submit(t.Context(), q) || q.ID != id || len(d.rules()) > 0 {
		t.Errorf("request %s, found %v", q.ID, d.rules())
	}
	if keys := slices.Compact(d.header("Idempotency-Key")); !slices.Equal(keys, []string{"key"}) {
		t.Errorf("sent under keys %v", keys)
	}
	if names := slices.Compact(d.header("X-Correlation-Id")); len(names) != 1 {
		t.Errorf("sent under names %v", names)
	}
}

// A call without a key is sent again, with another correlation id, if the first
// one had no effect. If that is unknown, it is not sent again.
func TestSettlesWithoutAKey(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(n int, w http.ResponseWriter) {
		problem(w, http.StatusServiceUnavailable, []string{"overloaded", "outcome_unknown"}[n])
	})
	q := d.request("")
	if d.submit(t.Context(), q) || !q.Unknown || len(d.rules()) > 0 {
		t.Errorf("unknown %t, found %v", q.Unknown, d.rules())
	}
	names := d.header("X-Correlation-Id")
	if len(names) != 2 || names[0] == names[1] || d.Record.Facts().NotDone[names[0]] != "503 overloaded" || q.Correlation != names[1] {
		t.Errorf("sent as %v, the request is %s, not done %v", names, q.Correlation, d.Record.Facts().NotDone)
	}
}

// An answer that is not allowed is found.
func TestFindsBadAnswers(t *testing.T) {
	t.Parallel()
	body := func(v View) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	id := uuid.New()
	good := View{RequestID: id, Status: "done", CartID: "cart", VariantID: "shirt", Quantity: 1, UpdatedAt: time.Unix(1, 0)}
	foreign, changed := good, good
	foreign.CartID, changed.UpdatedAt = "other", time.Unix(2, 0)
	for name, c := range map[string]struct {
		answers []string // the answers to an add and to two reads
		status  int
		rules   []string
	}{
		"nothing":                     {[]string{body(good), body(good), body(good)}, 200, nil},
		"an internal error":           {[]string{`{"code":"internal"}`, body(good)}, 500, []string{RuleAnswer}},
		"an unknown key":              {[]string{`{"code":"unauthorized"}`}, 401, []string{RuleAnswer}},
		"no request":                  {[]string{`{}`}, 200, []string{RuleAnswer}},
		"the request of another cart": {[]string{body(foreign)}, 200, []string{RuleRequestKept}},
		"another answer later":        {[]string{body(good), body(good), body(changed)}, 200, []string{RuleUnchanged}},
		"no longer final":             {[]string{body(good), strings.Replace(body(good), "done", "queued", 1)}, 200, []string{RuleUnchanged}},
		"not found":                   {[]string{body(good), "404"}, 200, []string{RuleNotLost}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, func(n int, w http.ResponseWriter) {
				answer := c.answers[min(n, len(c.answers)-1)]
				switch {
				case answer == "404":
					problem(w, http.StatusNotFound, "not_found")
				case n == 0:
					w.WriteHeader(c.status)
					fmt.Fprint(w, answer)
				default:
					fmt.Fprint(w, answer)
				}
			})
			q := d.request("")
			if d.submit(t.Context(), q) {
				for range 2 {
					d.readRequest(t.Context(), q, d.apis[0], "")
				}
			}
			if diff := cmp.Diff(c.rules, d.rules()); diff != "" {
				t.Errorf("(-want +got):\n%s\n%v", diff, d.findings.Kinds())
			}
		})
	}
}

// It is found if a key is answered with two requests, or two calls with one
// request.
func TestFindsDoubles(t *testing.T) {
	t.Parallel()
	findings := NewFindings()
	r := NewRecord(findings)
	a, b := &Request{Key: "a"}, &Request{Key: "b"}
	first, second := uuid.New(), uuid.New()
	r.ack(a, first, time.Now())
	r.ack(a, first, time.Now())
	if findings.Count() != 0 {
		t.Fatalf("found %v", findings.Kinds())
	}
	r.ack(a, second, time.Now())
	r.ack(b, first, time.Now())
	r.ended(first, "committed")
	r.ended(first, "released")
	var got []string
	for _, k := range findings.Kinds() {
		got = append(got, fmt.Sprint(k.Count, " ", k.Name))
	}
	if diff := cmp.Diff([]string{"2 " + RuleIdempotent, "1 " + RuleOneEnding}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An add that takes too long is found, unless its process was frozen.
func TestFindsSlowAdds(t *testing.T) {
	t.Parallel()
	for frozen, want := range map[time.Duration]int{0: 1, 10 * time.Second: 0} {
		d := newDesk(t, func(int, http.ResponseWriter) {})
		d.apis[0].Down = func(time.Time, time.Time) time.Duration { return frozen }
		c := &call{verb: verbAdd, tenant: d.tenant}
		d.measure(c, &reply{api: d.apis[0], status: 202, at: time.Now()}, time.Now().Add(-20*time.Second))
		if d.findings.Count() != want {
			t.Errorf("frozen for %s: found %v", frozen, d.findings.Kinds())
		}
	}
}

// Recovery is measured from the last fault's end to the next add of the same
// API.
func TestMeasuresRecovery(t *testing.T) {
	t.Parallel()
	var r Recovery
	r.Began("api-1")
	r.acked("api-1", time.Now())
	r.Ended("api-1")
	end := r.pending["api-1"]
	r.acked("api-2", end.Add(time.Second))
	r.acked("api-1", end.Add(2*time.Second))
	r.acked("api-1", end.Add(9*time.Second))
	r.Ended("api-2")
	r.Began("api-2")
	r.acked("api-2", time.Now().Add(time.Minute))
	if count, median, worst := r.Sum(); count != 1 || median != 2*time.Second || worst != median {
		t.Errorf("%d recoveries, median %s, worst %s", count, median, worst)
	}
}

// When the traffic has ended, an open call is not sent again, and its outcome
// remains unknown.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(_ int, w http.ResponseWriter) { problem(w, http.StatusServiceUnavailable, "overloaded") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := d.request("key")
	if d.submit(ctx, q) || !q.Unknown {
		t.Error("the call was settled")
	}
}
