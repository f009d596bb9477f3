package callback_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/checkouts/callback"
)

// call is what a payment service received.
type call struct {
	method, target string
	header         http.Header
	body           []byte
}

// service is a payment service on the loopback interface.
type service struct {
	URL string

	mu    sync.Mutex
	calls []call
}

// serve starts a payment service that answers with the handler.
func serve(t *testing.T, handler http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the call: %v", err)
		}
		s.mu.Lock()
		s.calls = append(s.calls, call{r.Method, r.URL.String(), r.Header, body})
		s.mu.Unlock()
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

func (s *service) received() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// answer is a handler with a fixed response.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// validator makes one that may reach the loopback interface.
func validator(t *testing.T, timeout time.Duration) *callback.Validator {
	t.Helper()
	v, err := callback.New(callback.Config{Secret: parse(t, master), Timeout: timeout, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func checkout(url string) checkouts.Checkout {
	return checkouts.Checkout{
		TenantID: uuid.Must(uuid.NewV7()), CheckoutID: uuid.Must(uuid.NewV7()), CartID: "cart 7", PaymentReference: "pay-1",
		CallbackURL: url, Attempt: 1, Deadline: time.Date(2026, 11, 22, 12, 15, 0, 0, time.FixedZone("", 3600)),
	}
}

// The service verifies the call as Standard Webhooks describes it, with the
// tenant's own secret, independently of the code that signs. Each attempt has
// the same webhook-id.
func TestCall(t *testing.T) {
	t.Parallel()
	shop := serve(t, answer(http.StatusOK, `{"result":"paid"}`))
	c := checkout(shop.URL + "/paid?shop=1")
	v := validator(t, 0)
	began := time.Now().Unix()
	for attempt := 1; attempt <= 2; attempt++ {
		c.Attempt = int32(attempt)
		if result, err := v.Validate(t.Context(), c); err != nil || result != checkouts.ResultPaid {
			t.Fatalf("%v, %v", result, err)
		}
	}
	calls := shop.received()
	if len(calls) != 2 {
		t.Fatalf("%d calls", len(calls))
	}
	for i, got := range calls {
		if got.method != http.MethodPost || got.target != "/paid?shop=1" || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s, %v", got.method, got.target, got.header)
		}
		verifySignature(t, got, parse(t, master).ForTenant(c.TenantID).Plaintext(), began)
		if id := got.header.Get("webhook-id"); id != c.CheckoutID.String() {
			t.Errorf("webhook-id %s of the checkout %s", id, c.CheckoutID)
		}
		want := fmt.Sprintf(`{"checkout_id":%q,"cart_id":"cart 7","payment_reference":"pay-1","attempt":%d,"deadline":"2026-11-22T11:15:00Z"}`, c.CheckoutID, i+1)
		if diff := cmp.Diff(want, string(got.body)); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
	}
}

// verifySignature checks a call as a payment service does.
func verifySignature(t *testing.T, got call, secret string, notBefore int64) {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	id, timestamp := got.header.Get("webhook-id"), got.header.Get("webhook-timestamp")
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, got.body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if signature := got.header.Get("webhook-signature"); signature != want {
		t.Errorf("signature %s, want %s", signature, want)
	}
	at, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || at < notBefore || at > time.Now().Unix() {
		t.Errorf("webhook-timestamp %q: %v", timestamp, err)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const repeated = checkouts.Result("")
	for _, c := range []struct {
		status int
		body   string
		want   checkouts.Result
	}{
		{200, `{"result":"paid"}`, checkouts.ResultPaid},
		{201, `{"result":"failed","reason":"card"}`, checkouts.ResultFailed},
		{200, ` {"result" : "pending"} `, checkouts.ResultPending},
		{202, ``, checkouts.ResultPending},
		{202, `{"result":"paid"}`, checkouts.ResultPending},
		{200, ``, checkouts.ResultPending},
		{200, " \n", checkouts.ResultPending},
		{204, ``, checkouts.ResultPending},
		{200, `OK`, repeated},
		{200, `{}`, repeated},
		{200, `{"result":"PAID"}`, repeated},
		{200, `{"Result":"paid"}`, repeated},
		{200, `{"result":true}`, repeated},
		{200, `["paid"]`, repeated},
		{200, `{"result":"paid"} x`, repeated},
		{200, `{"result":"paid","result":"failed"}`, repeated},
		{200, `{"result":"paid","result":"paid"}`, repeated},
		{200, `{"result":"failed","re\u0073ult":"paid"}`, repeated},
		{200, `{"result":"paid","note":1,"note":2}`, repeated},
		{200, `{"result":"paid","note":{"a":1,"a":2}}`, checkouts.ResultPaid},
		{200, `null`, repeated},
		{301, ``, repeated},
		{400, `{"result":"failed"}`, repeated},
		{404, ``, repeated},
		{408, ``, repeated},
		{410, `{"result":"failed"}`, repeated},
		{429, ``, repeated},
		{500, `{"result":"paid"}`, repeated},
		{503, ``, repeated},
	} {
		shop := serve(t, answer(c.status, c.body))
		got, err := validator(t, 0).Validate(t.Context(), checkout(shop.URL))
		if got != c.want || (err != nil) != (c.want == repeated) {
			t.Errorf("%d %q: %q, %v; want %q", c.status, c.body, got, err, c.want)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	other := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		shop := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, status) })
		if result, err := validator(t, 0).Validate(t.Context(), checkout(shop.URL)); err == nil || !strings.Contains(err.Error(), "redirects") {
			t.Errorf("%d: %q, %v", status, result, err)
		}
	}
	if reached.Load() {
		t.Error("a redirect was followed")
	}
}

// A call of a service whose headers or body do not come ends with the timeout.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]http.HandlerFunc{
		"headers": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"body": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"result":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		shop := serve(t, slow)
		result, err := validator(t, 100*time.Millisecond).Validate(t.Context(), checkout(shop.URL))
		if !errors.Is(err, context.DeadlineExceeded) || result != "" {
			t.Errorf("slow %s: %q, %v", name, result, err)
		}
	}
}

// Of an answer without an end only a bounded part is read, in the body as in
// the headers.
func TestHugeAnswers(t *testing.T) {
	t.Parallel()
	for name, huge := range map[string]http.HandlerFunc{
		"body": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1<<16)); err != nil {
					return
				}
			}
		},
		"header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) },
		"compressed": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "" {
				t.Error("the call accepts a compressed answer")
			}
			w.WriteHeader(http.StatusInternalServerError)
		},
	} {
		shop := serve(t, huge)
		if result, err := validator(t, 30*time.Second).Validate(t.Context(), checkout(shop.URL)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("huge %s: %q, %v", name, result, err)
		}
	}
}

// A host that was public when the URL was validated resolves to the loopback
// interface when it is called. The connection is refused after the resolution,
// so no other answer of the DNS can come in between.
func TestRebinding(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	shop := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	_, port, err := net.SplitHostPort(strings.TrimPrefix(shop.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := callback.New(callback.Config{
		Secret: parse(t, master), Timeout: 5 * time.Second,
		Resolver: serveZone(t, map[string]string{"rebound.example": "93.184.215.14,127.0.0.1", "inside.example": "127.0.0.1"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	url := "https://rebound.example:" + port + "/"
	if err := v.ValidateURL(t.Context(), "callback_url", url); err != nil {
		t.Fatalf("the host was public: %v", err)
	}
	for _, url := range []string{
		url, "https://inside.example:" + port, "https://127.0.0.1:" + port, "https://[::1]:" + port, "https://[::ffff:127.0.0.1]:" + port, "https://localhost:" + port,
	} {
		if result, err := v.Validate(t.Context(), checkout(url)); err == nil || !strings.Contains(err.Error(), "not one of the public internet") {
			t.Errorf("%s: %q, %v", url, result, err)
		}
	}
	if result, err := v.Validate(t.Context(), checkout(shop.URL)); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("http: %q, %v", result, err)
	}
	if reached.Load() {
		t.Error("the loopback interface was reached")
	}
}

// An error is logged. It contains neither the path and query of the URL, which
// may have a credential of the shop, nor the secret.
func TestErrorsHaveNoURL(t *testing.T) {
	t.Parallel()
	refused := httptest.NewServer(http.NotFoundHandler())
	refused.Close()
	for _, base := range []string{refused.URL, "http://nowhere.invalid", serve(t, answer(500, "")).URL} {
		_, err := validator(t, 5*time.Second).Validate(t.Context(), checkout(base+"/hook-s3cret?key=s3cret"))
		if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "whsec_") {
			t.Errorf("%s: %v", base, err)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []callback.Config{{}, {Secret: parse(t, master), Timeout: -1}} {
		if _, err := callback.New(c); err == nil {
			t.Errorf("%+v is valid", c)
		}
	}
}

// The body is JSON that any reader takes, whatever the ids contain.
func TestBodyIsJSON(t *testing.T) {
	t.Parallel()
	shop := serve(t, answer(http.StatusNoContent, ""))
	c := checkout(shop.URL)
	c.CartID, c.PaymentReference = "<cart> & \"1\" \u2028", "ref\\1"
	if _, err := validator(t, 0).Validate(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var got struct {
		CartID           string `json:"cart_id"`
		PaymentReference string `json:"payment_reference"`
	}
	if err := json.Unmarshal(shop.received()[0].body, &got); err != nil || got.CartID != c.CartID || got.PaymentReference != c.PaymentReference {
		t.Errorf("%+v, %v", got, err)
	}
}
