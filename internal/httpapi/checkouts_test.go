package httpapi

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// cartWith makes a cart that holds units of a variant.
func (s *shop) cartWith(cart, variant string, units int) {
	s.t.Helper()
	s.add(cart, variant, units)
	s.decide()
}

// begin begins the checkout of a cart and returns its path.
func (s *shop) begin(cart string) string {
	s.t.Helper()
	return s.call(202, "POST", "/v1/checkouts", fmt.Sprintf(`{"cart_id":%q,"payment_reference":"pay-1"}`, cart)).text(s.t, "status_url")
}

// lapse moves the deadline of every checkout into the past.
func (s *shop) lapse() {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), `UPDATE checkouts SET deadline = clock_timestamp() - interval '1 second'`)
	s.must(err)
}

func TestCheckouts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.stock("shoe", `{"stock":10}`)
	s.add("cart-17", "shirt", 2)
	s.cartWith("cart-17", "shoe", 1)
	begun := s.call(202, "POST", "/v1/checkouts",
		`{"cart_id":"cart-17","payment_reference":"order-4711","callback_url":"https://93.184.215.14/paid?shop=1"}`)
	golden(t, "begin_checkout", begun)
	url := begun.header.Get("Location")
	got := s.call(200, "GET", url, "")
	golden(t, "get_checkout", got)
	if url != begun.text(t, "status_url") || !bytes.Equal(got.body, begun.body) {
		t.Errorf("begun %s, read at %s %s", begun.body, url, got.body)
	}
	s.call(304, "GET", url, "", "If-None-Match", got.header.Get("ETag"))

	golden(t, "answer_checkout", s.call(200, "POST", url+"/payment", `{"result":"paid"}`))
	golden(t, "get_checkout_committed", s.call(200, "GET", url+"?wait=10", "", "If-None-Match", got.header.Get("ETag")))
	golden(t, "answer_checkout_ended", s.call(409, "POST", url+"/payment", `{"result":"paid"}`))
	s.refused(conflictingState, "POST", url+"/payment", `{"result":"failed"}`)
	want := []string{"shirt 8/0", "shoe 9/0"}
	stocks := `SELECT variant_id || ' ' || concat_ws('/', stock, reserved) FROM inventory_stocks ORDER BY variant_id`
	if diff := cmp.Diff(want, s.rows(stocks)); diff != "" {
		t.Errorf("stocks (-want +got):\n%s", diff)
	}

	s.cartWith("cart-18", "shoe", 3)
	failed := s.begin("cart-18")
	golden(t, "answer_checkout_failed", s.call(200, "POST", failed+"/payment", `{"result":"failed"}`))
	if diff := cmp.Diff(want, s.rows(stocks)); diff != "" {
		t.Errorf("stocks after the payment failed (-want +got):\n%s", diff)
	}
}

// The holds of a checkout are locked to it: each other verb is refused, and
// changes nothing.
func TestCheckoutInProgress(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	body := `{"cart_id":"c","payment_reference":"pay-1"}`
	s.refused(cartEmpty, "POST", "/v1/checkouts", body)
	request := s.add("c", "shirt", 1)
	s.refused(requestsPending, "POST", "/v1/checkouts", body)
	s.decide()
	url := s.begin("c")
	before := s.written()
	golden(t, "checkout_in_progress", s.call(409, "POST", "/v1/checkouts", body))
	reservation := "/v1/reservations/" + request
	for _, c := range [][3]string{
		{"POST", "/v1/carts/c/checkout"}, {"POST", "/v1/carts/c/extend", `{"seconds":1}`},
		{"DELETE", "/v1/carts/c"}, {"DELETE", "/v1/carts/c/items/shirt"},
		{"POST", reservation + "/commit"}, {"POST", reservation + "/release"}, {"POST", reservation + "/extend", `{"seconds":1}`},
	} {
		s.refused(checkoutRunning, c[0], c[1], c[2])
	}
	if after := s.written(); after != before {
		t.Errorf("refused calls wrote %d rows", after-before)
	}
	s.call(200, "POST", url+"/payment", `{"result":"paid"}`)

	s.cartWith("d", "shirt", 1)
	s.due("d")
	s.refused(holdExpired, "POST", "/v1/checkouts", `{"cart_id":"d","payment_reference":"pay-1"}`)
}

// A checkout is begun, paid and failed once for each key. A repetition has the
// checkout as it is by then.
func TestCheckoutKeys(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.cartWith("c", "shirt", 3)
	const body = `{"cart_id":"c","payment_reference":"pay-1"}`
	replies := s.atOnce(20, "POST", "/v1/checkouts", body, keyHeader, "begin")
	url := replies[0].header.Get("Location")
	for _, r := range replies {
		if r.status != 202 || r.header.Get("Location") != url || r.header.Get("Retry-After") != "1" || !bytes.Equal(r.body, replies[0].body) {
			t.Errorf("answered %d %v %s, another %s", r.status, r.header, r.body, replies[0].body)
		}
	}
	for _, r := range s.atOnce(20, "POST", url+"/payment", `{"result":"paid"}`, keyHeader, "pay") {
		if status := r.text(t, "status"); r.status != 200 || status != "committed" && status != "finalizing" {
			t.Errorf("answered %d %s", r.status, r.body)
		}
	}
	golden(t, "begin_checkout_replayed", s.call(200, "POST", "/v1/checkouts", body, keyHeader, "begin"))
	paid := s.call(200, "POST", url+"/payment", `{"result":"paid"}`, keyHeader, "pay")
	if paid.header.Get(replayedHeader) != "true" || paid.text(t, "status") != "committed" || len(paid.object(t)["committed"].([]any)) != 1 {
		t.Errorf("the repeated payment is %v %s", paid.header, paid.body)
	}
	s.refused(keyReused, "POST", "/v1/checkouts", `{"cart_id":"d","payment_reference":"pay-1"}`, keyHeader, "begin")
	s.refused(keyReused, "POST", url+"/payment", `{"result":"failed"}`, keyHeader, "pay")
	if got := s.rows(`SELECT concat_ws(' ', stock, reserved, (SELECT count(*) FROM checkouts)) FROM inventory_stocks`); got[0] != "7 0 1" {
		t.Errorf("stock, reserved and checkouts are %s", got[0])
	}

	// Neither does a host that is refused by now concern a repetition.
	s.cartWith("f", "shirt", 1)
	const called = `{"cart_id":"f","payment_reference":"pay-1","callback_url":"https://93.184.215.14/"}`
	s.call(202, "POST", "/v1/checkouts", called, keyHeader, "called")
	s.serveChanged(s.db, func(c *holdfast.Config) { c.Checkouts.Validator = nil })
	if r := s.call(202, "POST", "/v1/checkouts", called, keyHeader, "called"); r.header.Get(replayedHeader) != "true" {
		t.Errorf("the repetition is %v %s", r.header, r.body)
	}

	s.cartWith("e", "shirt", 1)
	failed := s.begin("e")
	for range 2 {
		if r := s.call(200, "POST", failed+"/payment", `{"result":"failed"}`, keyHeader, "fail"); r.text(t, "reason") != "payment_failed" {
			t.Errorf("a failed payment is %s", r.body)
		}
	}

	// The purge of old keys leaves that of a checkout.
	_, err := s.db.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = created_at - interval '8 days'`)
	s.must(err)
	purged, err := tenants.PurgeKeys(t.Context(), s.db, 7*24*time.Hour, 100)
	if begun := s.count(`SELECT count(*) FROM idempotency_keys`); err != nil || purged != 2 || begun != 2 {
		t.Errorf("purged %d keys, %v, want those of 2 payments; %d are left, want those of 2 checkouts", purged, err, begun)
	}

	// A lost checkout is as it was when it was begun.
	_, err = s.db.Exec(t.Context(), `DELETE FROM checkouts`)
	s.must(err)
	if r := s.call(202, "POST", "/v1/checkouts", body, keyHeader, "begin"); !bytes.Equal(r.body, replies[0].body) {
		t.Errorf("without its row: %s", r.body)
	}
}

// A payment that comes after the deadline is refused, with the status, releases
// the units, and raises one alert, however often it is repeated.
func TestLatePayment(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.cartWith("c", "shirt", 3)
	url := s.begin("c")
	s.lapse()
	for range 3 {
		golden(t, "answer_checkout_late", s.call(409, "POST", url+"/payment", `{"result":"paid"}`, keyHeader, "late"))
	}
	golden(t, "get_checkout_late", s.call(200, "GET", url, ""))
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'checkout.alert' AND reason = 'paid_too_late'`); n != 1 {
		t.Errorf("%d alerts are recorded, want 1", n)
	}
	if n := strings.Count(s.logged.String(), "level=ERROR"); n != 1 || !strings.Contains(s.logged.String(), "paid_too_late") {
		t.Errorf("%d errors are logged:\n%s", n, s.logged.String())
	}
	if n := s.count(`SELECT reserved FROM inventory_stocks`); n != 0 {
		t.Errorf("%d units are reserved", n)
	}
}

// If the commit cannot be made at once, the payment is recorded, and the
// response has a checkout that is finalizing.
func TestPaidIsRecordedFirst(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.cartWith("c", "shirt", 3)
	url := s.begin("c")
	obstacle, err := s.db.Begin(t.Context())
	s.must(err)
	defer func() { _ = obstacle.Rollback(t.Context()) }()
	_, err = obstacle.Exec(t.Context(), `SELECT FROM inventory_stocks FOR UPDATE`)
	s.must(err)
	s.service.bounds.request = 500 * time.Millisecond
	if r := s.call(200, "POST", url+"/payment", `{"result":"paid"}`); r.text(t, "status") != "finalizing" {
		t.Errorf("the answer is %s", r.body)
	}
	s.must(obstacle.Rollback(t.Context()))
	s.service.bounds.request = defaultBounds.request
	if r := s.call(200, "POST", url+"/payment", `{"result":"paid"}`); r.text(t, "status") != "committed" {
		t.Errorf("the second answer is %s", r.body)
	}
}

// Payments for a stock that another transaction has locked are recorded, and
// leave connections to other requests.
func TestCheckoutsOfALockedStock(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":100}`)
	s.stock("shoe", `{"stock":1}`)
	config := s.db.Config()
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	s.must(err)
	defer pool.Close()
	s.serveChanged(pool, func(c *holdfast.Config) { c.IntakePool = s.db })
	urls := make([]string, 12)
	for i := range urls {
		cart := fmt.Sprint("cart", i)
		s.cartWith(cart, "shirt", 1)
		urls[i] = s.begin(cart)
	}
	s.cartWith("late", "shirt", 1)
	obstacle, err := s.db.Begin(t.Context())
	s.must(err)
	defer func() { _ = obstacle.Rollback(t.Context()) }()
	_, err = obstacle.Exec(t.Context(), `SELECT FROM inventory_stocks WHERE variant_id = 'shirt' FOR UPDATE`)
	s.must(err)
	var calls sync.WaitGroup
	for _, url := range urls {
		calls.Go(func() {
			r := s.send("POST", url+"/payment", strings.NewReader(`{"result":"paid"}`))
			if r.status != 200 || !bytes.Contains(r.body, []byte(`"status":"finalizing"`)) {
				t.Errorf("the answer is %d %s", r.status, r.body)
			}
		})
	}
	calls.Go(func() {
		r := s.send("POST", "/v1/checkouts", strings.NewReader(`{"cart_id":"late","payment_reference":"p"}`))
		if r.status != 503 {
			t.Errorf("the begin is answered %d %s", r.status, r.body)
		}
	})
	// The calls occupy places, not connections, so that other calls get one.
	const blocked = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	pgtest.Until(t, "a call waits for the lock", func() bool { return s.count(blocked) > 0 })
	for range 5 {
		s.call(200, "GET", "/v1/stocks/shoe", "")
		if n := s.count(blocked); n >= int64(config.MaxConns) {
			t.Errorf("%d connections wait for the lock, all that the pool has", n)
		}
	}
	calls.Wait()
}

// A long poll ends when the checkout does, at its limit, and when the program
// stops.
func TestWaitForCheckout(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.cartWith("c", "shirt", 1)
	url := s.begin("c")
	if r := s.call(200, "GET", url+"?wait=1", ""); r.text(t, "status") != "validating" {
		t.Errorf("after the limit: %s", r.body)
	}
	waited := make(chan reply, 1)
	go func() {
		r, err := s.try("GET", url+"?wait=30", nil)
		if err != nil {
			t.Error(err)
		}
		waited <- r
	}()
	s.untilAnswering(1)
	s.call(200, "POST", url+"/payment", `{"result":"paid"}`)
	if r := <-waited; r.text(t, "status") != "committed" {
		t.Errorf("after the payment: %s", r.body)
	}
	for _, wait := range []string{"0", "-1", "31", "x"} {
		s.refused(invalid, "GET", url+"?wait="+wait, "")
	}
}

// A checkout of another tenant does not exist, for every call.
func TestCheckoutOfAnotherTenant(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.cartWith("c", "shirt", 1)
	url := s.begin("c")
	own := s.key
	_, s.key = s.newTenant("neighbour")
	before := s.written()
	s.refused(notFound, "GET", url, "")
	s.refused(notFound, "GET", url+"?wait=1", "")
	for _, result := range []string{"paid", "failed"} {
		s.refused(notFound, "POST", url+"/payment", `{"result":"`+result+`"}`)
	}
	s.refused(cartEmpty, "POST", "/v1/checkouts", `{"cart_id":"c","payment_reference":"pay-1"}`)
	if after := s.written(); after != before {
		t.Errorf("refused calls wrote %d rows", after-before)
	}
	// Nor may a key of a storefront report a payment.
	s.key = own
	cart := s.newKey(s.tenant, tenants.ScopeCart)
	s.refused(forbidden, "POST", url+"/payment", `{"result":"paid"}`, "Authorization", "Bearer "+cart)
	if r := s.call(200, "GET", url, "", "Authorization", "Bearer "+cart); r.text(t, "status") != "validating" {
		t.Errorf("after all: %s", r.body)
	}
}

func TestBadCheckouts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":10}`)
	s.cartWith("c", "shirt", 1)
	before := s.written()
	with := func(url string) string {
		return fmt.Sprintf(`{"cart_id":"c","payment_reference":"pay-1","callback_url":%q}`, url)
	}
	for body, field := range map[string]string{
		`{}`:              "cart_id",
		`{"cart_id":"c"}`: "payment_reference",
		`{"cart_id":"..","payment_reference":"pay-1"}`:                           "cart_id",
		`{"cart_id":"c","payment_reference":""}`:                                 "payment_reference",
		`{"cart_id":"c","payment_reference":"a\nb"}`:                             "payment_reference",
		`{"cart_id":"c","payment_reference":"` + strings.Repeat("x", 201) + `"}`: "payment_reference",
		`{"cart_id":"c","payment_reference":"p","callback_url":null}`:            "callback_url",
		`{"cart_id":"c","payment_reference":"p","status":"committed"}`:           "status",
		with(""):                           "callback_url",
		with("pay"):                        "callback_url",
		with("http://93.184.215.14/"):      "callback_url",
		with("https://127.0.0.1/"):         "callback_url",
		with("https://[::ffff:10.0.0.1]/"): "callback_url",
		with("https://169.254.169.254/"):   "callback_url",
		with("https://localhost/"):         "callback_url",
		with("https://u:p@93.184.215.14/"): "callback_url",
		with("https://93.184.215.14/" + strings.Repeat("x", 2000)): "callback_url",
	} {
		p := s.refused(invalid, "POST", "/v1/checkouts", body)
		if len(p.Errors) == 0 || p.Errors[0].Field != field {
			t.Errorf("%.80s: %v, want the field %s", body, p.Errors, field)
		}
	}
	golden(t, "begin_checkout_private", s.call(422, "POST", "/v1/checkouts", with("https://192.168.1.1/")))
	s.serveChanged(s.db, func(c *holdfast.Config) { c.Checkouts.Validator = nil })
	golden(t, "begin_checkout_no_callbacks", s.call(422, "POST", "/v1/checkouts", with("https://93.184.215.14/")))
	if after := s.written(); after != before {
		t.Errorf("refused calls wrote %d rows", after-before)
	}
	url := s.begin("c")
	for body, field := range map[string]string{`{}`: "result", `{"result":"pending"}`: "result", `{"result":"Paid"}`: "result", `{"paid":true}`: "paid"} {
		if p := s.refused(invalid, "POST", url+"/payment", body); p.Errors[0].Field != field {
			t.Errorf("%s: %v", body, p.Errors)
		}
	}
	s.refused(invalid, "GET", "/v1/checkouts/x", "")
	s.refused(notFound, "GET", "/v1/checkouts/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11", "")
}
