package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/secrettest"
)

// begin begins a checkout and returns its path.
func (s service) begin(cart, more string) string {
	s.t.Helper()
	c := s.call(http.MethodPost, "/v1/checkouts", fmt.Sprintf(`{"cart_id":%q,"payment_reference":"order-%s"%s}`, cart, cart, more), http.StatusAccepted)
	return fmt.Sprint(c["status_url"])
}

// until polls a checkout until it has the status.
func (s service) until(url, status string) map[string]any {
	s.t.Helper()
	var c map[string]any
	pgtest.Until(s.t, url+" is "+status, func() bool {
		c = s.call(http.MethodGet, url+"?wait=5", "", http.StatusOK)
		return c["status"] == status
	})
	return c
}

// Carts are checked out in the running program: by a callback that first fails
// and then is pending, by a report of the shop, and too late.
func TestCheckouts(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	env := shop.CallbackEnv("LOG_LEVEL", "debug")
	process := programtest.Start(t, run, env, "run", "--port", "0")
	s := ready(t, process.Stdout)
	secret := strings.TrimSpace((&tool{t, shop, env}).run("callback-secret"))
	payments := programtest.ServePayments(t, func(c programtest.PaymentCall) (int, string) {
		switch c.Attempt {
		case 1:
			return http.StatusBadGateway, ""
		case 2:
			return http.StatusAccepted, ""
		default:
			return http.StatusOK, `{"result":"paid"}`
		}
	})
	s.call(http.MethodPut, "/v1/stocks/ticket", `{"stock":10}`, http.StatusOK)
	for _, cart := range []string{"called", "reported", "failed", "late"} {
		s.add(cart, "ticket")
	}

	url := s.begin("called", fmt.Sprintf(`,"callback_url":%q`, payments.URL+"/paid?key=callback-key-of-the-shop"))
	s.call(http.MethodDelete, "/v1/carts/called", "", http.StatusConflict)
	done := s.until(url, "committed")
	if committed, ok := done["committed"].([]any); !ok || len(committed) != 1 {
		t.Errorf("committed is %v", done["committed"])
	}
	calls := payments.Calls()
	if len(calls) != 3 {
		t.Errorf("%d calls, want 3", len(calls))
	}
	for i, c := range calls {
		if c.Attempt != i+1 || c.ID != done["checkout_id"] || c.CheckoutID != c.ID || c.CartID != "called" || c.PaymentReference != "order-called" || !isSigned(t, &c, secret) {
			t.Errorf("call %d is %+v", i+1, c)
		}
	}

	s.call(http.MethodPost, s.begin("reported", "")+"/payment", `{"result":"paid"}`, http.StatusOK)
	s.call(http.MethodPost, s.begin("failed", "")+"/payment", `{"result":"failed"}`, http.StatusOK)

	payLate(t, shop, s, process)
	stock := s.call(http.MethodGet, "/v1/stocks/ticket", "", http.StatusOK)
	if stock["stock"] != 8. || stock["reserved"] != 0. {
		t.Errorf("the stock is %v, want 8 and none reserved", stock)
	}
	if err := process.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	secrettest.AssertAbsent(t, process.Stderr.String()+process.Stdout.String(), programtest.CallbackSecret, secret, "callback-key-of-the-shop")
	secrettest.AssertAbsent(t, shop.Dump(), programtest.CallbackSecret, secret)
	shop.Verify()
}

// payLate reports a payment after its checkout was compensated.
func payLate(t *testing.T, shop *programtest.Fixture, s service, process *programtest.Inside) {
	t.Helper()
	late := s.begin("late", "")
	if n := shop.Int(`WITH lapsed AS (
		UPDATE checkouts SET deadline = clock_timestamp(), next_attempt_at = clock_timestamp() WHERE cart_id = 'late' RETURNING 1
	) SELECT count(*) FROM lapsed`); n != 1 {
		t.Fatalf("%d checkouts lapsed", n)
	}
	if c := s.until(late, "compensated"); c["reason"] != "payment_timeout" || c["alert"] != nil {
		t.Errorf("not paid by the deadline: %v", c)
	}
	refused := s.call(http.MethodPost, late+"/payment", `{"result":"paid"}`, http.StatusConflict)
	if refused["code"] != "conflicting_state" || refused["actual"] != "compensated" {
		t.Errorf("paid after the deadline: %v", refused)
	}
	if c := s.until(late, "compensated"); c["alert"] != "paid_too_late" {
		t.Errorf("after the late payment: %v", c)
	}
	if line := process.Stderr.Line(t, `"level":"ERROR"`); !strings.Contains(line, "paid_too_late") {
		t.Errorf("the error is %s", line)
	}
}

// isSigned reports whether the secret signed the call, as Standard Webhooks
// describes it.
func isSigned(t *testing.T, c *programtest.PaymentCall, secret string) bool {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(c.ID + "." + c.Header.Get("webhook-timestamp") + "." + string(c.Body)))
	return c.Header.Get("webhook-signature") == "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
