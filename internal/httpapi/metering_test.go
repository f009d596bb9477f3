package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// unlimited means no rate limit.
var unlimited = ratelimit.Rate{}

// want adds a unit of a variant to the cart, and expects the status.
func (s *shop) want(status int, cart, variant string, headers ...string) reply {
	s.t.Helper()
	return s.call(status, "POST", "/v1/carts/"+cart+"/items", fmt.Sprintf(`{"variant_id":%q,"quantity":1}`, variant), headers...)
}

// wantSpent compares the owners of redeemed and of other tokens, in the order
// in which these were minted.
func (s *shop) wantSpent(yes, no string) {
	s.t.Helper()
	var got [2]string
	for i, sql := range []string{
		`SELECT subject FROM expiring_tokens WHERE consumed_at IS NOT NULL ORDER BY created_at`,
		`SELECT subject FROM expiring_tokens WHERE consumed_at IS NULL ORDER BY created_at`,
	} {
		got[i] = strings.Join(s.rows(sql), " ")
	}
	if got != [2]string{yes, no} {
		s.t.Errorf("the tokens of %q are spent and those of %q are not, want %q and %q", got[0], got[1], yes, no)
	}
}

// TestTokenIsRequired checks that only a caller with the right token can add a
// variant that requires one. All others receive the same response, and for them
// nothing is written, counted or redeemed.
func TestTokenIsRequired(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, ratelimit.Rate{Limit: 100, Window: time.Hour})
	s.stock("shirt", `{"stock":10,"admission":"token"}`)
	s.stock("shoe", `{"stock":10,"admission":"token"}`)
	neighbour, key := s.newTenant("neighbour")
	ann, bob := s.mint(`{"subject":"ann","variant_id":"shirt"}`), s.mint(`{"subject":"bob","variant_id":"shirt"}`)
	shoe, late := s.mint(`{"subject":"cat","variant_id":"shoe"}`), s.mint(`{"subject":"dan"}`)
	own := s.key
	s.key = key
	foreign := s.mint(`{"subject":"eve"}`)
	s.key = own
	_, err := s.db.Exec(t.Context(), `
		UPDATE expiring_tokens
		SET created_at = created_at - interval '1 hour', expires_at = expires_at - interval '1 hour'
		WHERE subject = 'dan'`)
	s.must(err)
	s.want(202, "c", "shirt", admissionHeader, bob, customerHeader, "bob")

	before := s.written()
	golden(t, "admission_required", s.want(403, "c", "shirt", customerHeader, "ann"))
	s.isProblem(s.want(403, "c", "shirt", customerHeader, "ann", admissionHeader, " "), admissionRequired) // a header without a token
	var first reply
	for _, tc := range []struct{ name, customer, token string }{
		{"no token at all", "ann", "nonsense"},
		{"a typing error", "ann", ann[:len(ann)-1]},
		{"another's", "bob", ann},
		{"of a customer, without naming the customer", "", ann},
		{"used", "bob", bob},
		{"for another variant", "cat", shoe},
		{"expired", "dan", late},
		{"of another tenant", "eve", foreign},
		{"twice in one", "ann", ann + ann},
	} {
		r := s.want(403, "c", "shirt", customerHeader, tc.customer, admissionHeader, tc.token, keyHeader, "k")
		s.isProblem(r, admissionRefused)
		r.header.Del(correlationHeader)
		r.header.Del("Date")
		if first.status == 0 {
			first = r
			golden(t, "admission_refused", r)
		}
		if diff := cmp.Diff(first.header, r.header); diff != "" || !bytes.Equal(first.body, r.body) {
			t.Errorf("%s: the answer shows something: %s, %s", tc.name, r.body, diff)
		}
	}
	if after := s.written(); after != before {
		t.Errorf("refused calls wrote %d rows", after-before)
	}
	rates := `SELECT scope FROM budget_rates WHERE full_at > extract(epoch FROM clock_timestamp()) * 1000000000`
	if diff := cmp.Diff([]string{"customer:bob"}, s.rows(rates)); diff != "" {
		t.Errorf("counted callers (-want +got):\n%s", diff)
	}
	s.wantSpent("bob", "dan ann cat eve")

	s.want(202, "c", "shirt", customerHeader, "ann", admissionHeader, ann, keyHeader, "k") // the key of the rejected requests
	s.want(202, "c", "shoe", customerHeader, "cat", admissionHeader, shoe)
	s.wantSpent("ann bob cat", "dan eve")
	if n := s.count(`SELECT count(*) FROM reservation_requests WHERE tenant_id <> $1`, neighbour.TenantID); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

// TestTokenForAny checks tokens for any variant. Such a token admits one
// request for a variant that requires one, and is not redeemed where none is
// required. If no customer is named, it belongs to the cart.
func TestTokenForAny(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, unlimited)
	s.stock("shirt", `{"stock":10,"admission":"token"}`)
	s.stock("sock", `{"stock":10}`)
	s.stock("song", `{"tracked":false,"admission":"token"}`)
	shirt, song, set := s.mint(`{"subject":"c"}`), s.mint(`{"subject":"ann"}`), s.mint(`{"subject":"bob","variant_id":"shirt"}`)

	for _, token := range []string{shirt, "nonsense", ""} {
		if r := s.want(202, "c", "sock", admissionHeader, token); r.header.Get(limitHeader) != "" {
			t.Errorf("there is no rate, and the answer shows one: %v", r.header)
		}
	}
	s.wantSpent("", "c ann bob")
	s.want(202, "c", "shirt", admissionHeader, shirt)

	s.isProblem(s.want(403, "c", "song", customerHeader, "ann"), admissionRequired)
	s.isProblem(s.want(403, "c", "song", customerHeader, "ann", admissionHeader, shirt), admissionRefused)
	if got := s.want(200, "c", "song", customerHeader, "ann", admissionHeader, song).text(t, "status"); got != "done" {
		t.Errorf("the request for a digital variant is %s", got)
	}

	const path, two = "/v1/carts/c/items/shirt", `{"quantity":2}`
	s.refused(admissionRequired, "PATCH", path, two)
	s.refused(admissionRefused, "PATCH", path, two, admissionHeader, set)
	s.call(202, "PATCH", path, two, admissionHeader, set, customerHeader, "bob")
	s.wantSpent("c ann bob", "")
	s.decide()
	if diff := cmp.Diff([]string{"sock 3", "shirt 2"}, s.rows(`
		SELECT concat_ws(' ', resource_key, sum(quantity)) FROM reservations WHERE status = 'held' GROUP BY resource_key ORDER BY 1 DESC`)); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
}

// TestTokenIsSpentOnce makes many concurrent calls with one token: first with
// one request each, then all with the same request.
func TestTokenIsSpentOnce(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, unlimited)
	s.stock("shirt", `{"stock":100,"admission":"token"}`)
	const path, item = "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`
	in := 0
	for _, r := range s.atOnce(30, "POST", path, item, admissionHeader, s.mint(`{"subject":"c"}`)) {
		if r.status == 202 {
			in++
		} else {
			s.isProblem(r, admissionRefused)
		}
	}
	if in != 1 {
		t.Errorf("%d were admitted with one token", in)
	}
	for _, r := range s.atOnce(30, "POST", path, item, admissionHeader, s.mint(`{"subject":"c"}`), keyHeader, "k") {
		if r.status != 202 {
			t.Errorf("a call with the shared key is answered %d %s", r.status, r.body)
		}
	}
	if n := s.count(`SELECT count(*) FROM reservation_requests`); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	s.wantSpent("c c", "")
}

// TestRepetitionSpendsNothing checks that a repetition with any token receives
// the first answer, and that nothing is counted or redeemed for it.
func TestRepetitionSpendsNothing(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{Limit: 10, Window: time.Hour}, ratelimit.Rate{Limit: 1, Window: time.Hour})
	s.stock("shirt", `{"stock":10,"admission":"token"}`)
	first, other := s.mint(`{"subject":"ann"}`), s.mint(`{"subject":"ann"}`)
	r := s.want(202, "c", "shirt", customerHeader, "ann", admissionHeader, first, keyHeader, "k")
	const levelsSQL = `
		SELECT concat_ws(' ', scope, full_at)
		FROM budget_rates
		WHERE full_at > extract(epoch FROM clock_timestamp()) * 1000000000
		ORDER BY scope`
	levels := s.rows(levelsSQL)
	for _, headers := range [][]string{
		{customerHeader, "ann", admissionHeader, first}, {customerHeader, "ann", admissionHeader, other}, {customerHeader, "ann"},
		{customerHeader, "bob", admissionHeader, "nonsense"}, {},
	} {
		again := s.want(202, "c", "shirt", append(headers, keyHeader, "k")...)
		if !bytes.Equal(again.body, r.body) || again.header.Get(replayedHeader) != "true" {
			t.Errorf("%v: the repetition is %s, headers %v", headers, again.body, again.header)
		}
		if again.header.Get(limitHeader) != "" || again.header.Get(policyHeader) != "" {
			t.Errorf("%v: the repetition, which is not counted, shows the state of the rates", headers)
		}
	}
	if diff := cmp.Diff(levels, s.rows(levelsSQL)); diff != "" || len(levels) != 2 {
		t.Errorf("repetitions were counted (-before +after):\n%s", diff)
	}
	if n := s.count(`SELECT count(*) FROM reservation_requests`); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	s.wantSpent("ann", "ann")
	s.decide()
	s.want(200, "c", "shirt", keyHeader, "k")
}

// TestRateLimitFields compares the header fields exactly with the form that the
// draft defines.
func TestRateLimitFields(t *testing.T) {
	t.Parallel()
	minute := func(limit int64) ratelimit.Rate { return ratelimit.Rate{Limit: limit, Window: time.Minute} }
	for _, tc := range []struct {
		name             string
		tenant, customer ratelimit.Rate
		policy, limit    string
	}{
		{"both", minute(600), minute(30), `"tenant";q=600;w=60, "customer";q=30;w=60`, `"tenant";r=599;t=1, "customer";r=29;t=2`},
		{"the tenant's", minute(7), unlimited, `"tenant";q=7;w=60`, `"tenant";r=6;t=9`},
		{"the customer's", unlimited, ratelimit.Rate{Limit: 1, Window: 24 * time.Hour}, `"customer";q=1;w=86400`, `"customer";r=0;t=86400`},
		{"none", unlimited, unlimited, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newMeteredShop(t, tc.tenant, tc.customer)
			s.stock("shirt", `{"stock":10}`)
			s.stock("song", `{"tracked":false}`)
			r := s.want(202, "c", "shirt")
			if tc.name == "both" {
				golden(t, "add_item_counted", r)
			}
			if r.header.Get(policyHeader) != tc.policy || r.header.Get(limitHeader) != tc.limit {
				t.Errorf("%s: %s\n%s: %s", policyHeader, r.header.Get(policyHeader), limitHeader, r.header.Get(limitHeader))
			}
			if r = s.want(200, "d", "song"); r.header.Get(policyHeader) != tc.policy || (r.header.Get(limitHeader) == "") != (tc.limit == "") {
				t.Errorf("a finished request: headers %v", r.header)
			}
			for _, path := range []string{"/v1/carts/c", "/v1/stocks/shirt"} {
				if r := s.call(200, "GET", path, ""); r.header.Get(limitHeader) != "" {
					t.Errorf("%s, which is not counted, shows the state of the rates", path)
				}
			}
		})
	}
}

// TestUntilMore checks the time until a rate has one more unit, computed from
// the time at which it is full again.
func TestUntilMore(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tc := range []struct {
		limit  int64
		window time.Duration
		state  ratelimit.State
		want   int64
	}{
		{600, time.Minute, ratelimit.State{Remaining: 600}, 0},
		{600, time.Minute, ratelimit.State{Remaining: 599, Reset: 100 * time.Millisecond}, 1},
		{30, time.Minute, ratelimit.State{Remaining: 0, Reset: time.Minute}, 2},
		{30, time.Minute, ratelimit.State{Remaining: 0, Reset: time.Minute, Wait: 2 * time.Second}, 2},
		{30, time.Minute, ratelimit.State{Remaining: 10, Reset: 39*time.Second + 1}, 2},
		{30, time.Minute, ratelimit.State{Remaining: 10, Reset: 39 * time.Second}, 1},
		{ratelimit.RateLimitMax, day, ratelimit.State{Reset: day}, 1},
		{1, day, ratelimit.State{Reset: day}, 86400},
	} {
		if got := wholeSeconds(untilMore(ratelimit.Rate{Limit: tc.limit, Window: tc.window}, tc.state)); got != tc.want {
			t.Errorf("%d in %s, %+v: more in %d s, want %d", tc.limit, tc.window, tc.state, got, tc.want)
		}
	}
}

// TestOverBudget checks that a customer above its rate is refused, and then the
// tenant, both with the time to wait. Nothing is written or redeemed for a
// refused request, and it is not counted for any other tenant or customer.
func TestOverBudget(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{Limit: 4, Window: 4 * time.Hour}, ratelimit.Rate{Limit: 2, Window: time.Hour})
	s.stock("shirt", `{"stock":10}`)
	s.stock("shoe", `{"stock":10,"admission":"token"}`)
	token := s.mint(`{"subject":"ann"}`)
	over := func(customer, variant string, wait time.Duration, policies ...string) reply {
		t.Helper()
		before := s.written()
		r := s.want(429, "c", variant, customerHeader, customer, admissionHeader, token, keyHeader, "k")
		if diff := cmp.Diff(policies, s.isProblem(r, overBudget).Violated); diff != "" {
			t.Errorf("the policies (-want +got):\n%s", diff)
		}
		after := r.header.Get("Retry-After")
		if n, err := strconv.Atoi(after); err != nil || n < 1 || n > int(wait/time.Second) {
			t.Errorf("Retry-After is %q, want 1 to %s", after, wait)
		}
		if got, want := r.header.Get(policyHeader), `"tenant";q=4;w=14400, "customer";q=2;w=3600`; got != want {
			t.Errorf("%s: %s, want %s", policyHeader, got, want)
		}
		if got, want := r.header.Get(limitHeader), fmt.Sprintf(`%q;r=0;t=%s`, policies[0], after); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want it to contain %s", limitHeader, got, want)
		}
		if strings.Contains(string(r.body), customer) {
			t.Errorf("the problem shows the scope: %s", r.body)
		}
		if n := s.written() - before; n != 0 {
			t.Errorf("the refused call wrote %d rows", n)
		}
		return r
	}
	s.want(202, "a", "shirt", customerHeader, "ann")
	s.want(202, "b", "shirt", customerHeader, "ann") // her second request, in another cart
	r := over("ann", "shoe", 30*time.Minute, "customer")
	if got := r.header.Get(limitHeader); !strings.HasPrefix(got, `"tenant";r=2;t=`) {
		t.Errorf("the refused call was counted for the tenant: %s", got)
	}
	r.header.Set("Retry-After", "1800") // the time may be a second less
	r.header.Set(limitHeader, `"tenant";r=2;t=3600, "customer";r=0;t=1800`)
	golden(t, "over_budget", r)
	s.want(202, "a", "shirt", customerHeader, "bob")
	s.want(202, "carol", "shirt")
	over("dave", "shirt", time.Hour, "tenant")
	over("ann", "shoe", time.Hour, "tenant", "customer")
	over("carol", "shirt", time.Hour, "tenant")
	s.wantSpent("", "ann")

	own := s.key
	_, s.key = s.newTenant("neighbour")
	s.want(202, "a", "shirt", customerHeader, "ann")
	s.key = own
	_, err := s.db.Exec(t.Context(), `UPDATE budget_rates SET full_at = full_at - 3600::bigint * 1000000000`) // an hour passes in the database
	s.must(err)
	s.renewIntake()                                                                         // the old intake does not know the new times
	s.want(202, "c", "shoe", customerHeader, "ann", admissionHeader, token, keyHeader, "k") // the key of the refused calls
	s.isProblem(s.want(429, "c", "shirt", customerHeader, "ann"), overBudget)
	s.wantSpent("ann", "")
}

// TestCustomerHeader checks that the customer is an id and is sent once, as the
// token is.
func TestCustomerHeader(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, unlimited)
	s.stock("shirt", `{"stock":10}`)
	before := s.written()
	for _, bad := range []string{strings.Repeat("x", 129), "\xff", "a\u0085"} {
		r := s.want(422, "c", "shirt", customerHeader, bad)
		if p := s.isProblem(r, invalid); len(p.Errors) != 1 || p.Errors[0].Field != customerHeader {
			t.Errorf("%q: the fields are %v", bad, p.Errors)
		}
	}
	for name, h := range map[string]http.Header{
		customerHeader: {customerHeader: {""}}, customerHeader + " twice": {customerHeader: {"a", "a"}},
		admissionHeader + " twice": {admissionHeader: {"hft_secret", "hft_secret"}},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/carts/c/items", http.NoBody)
		r.Header = h
		err := s.service.credentials(newRequest(httptest.NewRecorder(), r), &holdfast.CallOpts{})
		wrong, ok := errors.AsType[*inventory.InvalidError](err)
		if !ok || !strings.HasPrefix(name, wrong.Field) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := s.written(); after != before {
		t.Errorf("refused calls wrote %d rows", after-before)
	}
	s.want(202, "c", "shirt", customerHeader, strings.Repeat("ü", 128), admissionHeader, strings.Repeat("x", 10_000))
	for _, id := range []string{".", "..", "/", "//"} { // only an id of a path must have another character
		s.want(202, "c", "shirt", customerHeader, id)
		if got := s.call(200, "POST", "/v1/admissions", `{"subject":"`+id+`"}`).text(t, "subject"); got != id {
			t.Errorf("the subject is %q, want %q", got, id)
		}
	}
}

// TestMeteringErrors checks the problem of each error, and that it contains no
// other part of the error.
func TestMeteringErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]kind{
		admission.ErrTokenRequired:                                                    admissionRequired,
		fmt.Errorf("submit: %w", tokens.ErrSubject):                                   admissionRefused,
		&ratelimit.ExceededError{Rate: ratelimit.Rate{Scope: "secret"}}:               overBudget,
		&metered.Error{Kind: metered.ErrInvalid, Field: "subject", Message: "is bad"}: invalid,
	} {
		p := problemOf(err)
		if p.Code != want.code || strings.Contains(string(encode(p)), "secret") || (want == overBudget) != (p.header.Get("Retry-After") == "1") {
			t.Errorf("%v is %s, Retry-After %q", err, encode(p), p.header.Get("Retry-After"))
		}
	}
	for _, err := range []error{
		&metered.Error{Kind: metered.ErrInvalid, Field: "subject", Message: "is bad"}, &ratelimit.InvalidError{Field: "subject", Message: "is bad"},
	} {
		if p := problemOf(err); len(p.Errors) != 1 || p.Errors[0].Field != "subject" {
			t.Errorf("%T: the fields are %v", err, p.Errors)
		}
	}
}

// renewIntake gives the shop a new client, with an empty cache.
func (s *shop) renewIntake() {
	s.t.Helper()
	s.serve(s.db, s.config)
}
