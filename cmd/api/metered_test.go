package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// answer is the status, the header and the fields of an answer.
type answer struct {
	status int
	header http.Header
	fields map[string]any
}

// send makes a call with headers, given as name, value, name, value.
func (s *storefront) send(method, path, body string, headers ...string) (a answer) {
	s.t.Helper()
	header := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	response, err := s.api.Send(context.Background(), client.Call{Method: method, Path: path, Body: []byte(body), CallOpts: client.CallOpts{Header: header}})
	if response == nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(response.Body, &a.fields); err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	a.status, a.header = response.Status, response.Header
	return a
}

// expect fails the test unless the answer has the status and, unless it is
// empty, the problem code.
func (s *storefront) expect(a answer, status int, code string) answer {
	s.t.Helper()
	if got, _ := a.fields["code"].(string); a.status != status || got != code {
		s.t.Fatalf("%d %v, want %d %s", a.status, a.fields, status, code)
	}
	return a
}

// add adds a ticket to the customer's cart, with a token and an idempotency key
// unless they are empty.
func (s *storefront) add(customer, token, key string) answer {
	s.t.Helper()
	headers := []string{"Customer-Id", customer}
	if token != "" {
		headers = append(headers, "Admission-Token", token)
	}
	if key != "" {
		headers = append(headers, "Idempotency-Key", key)
	}
	return s.send(http.MethodPost, "/v1/carts/cart-"+customer+"/items", `{"variant_id":"ticket","quantity":1}`, headers...)
}

// mint mints a token for the customer.
func (s *storefront) mint(customer string) string {
	s.t.Helper()
	a := s.expect(s.send(http.MethodPost, "/v1/admissions", fmt.Sprintf(`{"subject":%q,"variant_id":"ticket"}`, customer)), http.StatusOK, "")
	return a.fields["token"].(string)
}

const meteredRowsSQL = `
SELECT (SELECT count(*) FROM reservation_requests), (SELECT count(*) FROM expiring_tokens WHERE consumed_at IS NULL),
       (SELECT count(*) FROM expiring_tokens WHERE consumed_at IS NOT NULL),
       (SELECT count(*) FROM budget_rates WHERE full_at > extract(epoch FROM clock_timestamp()) * 1000000000)`

// meteredRows are the rows that a call may write: requests, tokens, and rates
// that are not full.
type meteredRows struct{ requests, unspent, spent, rates int }

func expectRows(t *testing.T, shop *programtest.Fixture, want meteredRows) {
	t.Helper()
	var got meteredRows
	if err := shop.DB.QueryRow(t.Context(), meteredRowsSQL).Scan(&got.requests, &got.unspent, &got.spent, &got.rates); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("rows: %+v, want %+v", got, want)
	}
}

// program returns another program on the shop's database.
func program(t *testing.T, env map[string]string) *boot.Program {
	t.Helper()
	p, err := boot.NewProgram(t.Context(), "holdfast-test", boot.Process{Env: envconfig.MapLookuper(env), Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// This is a sale by token in the programs: migrate, mint, add, decide, count.
func TestMetered(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	env := shop.Env("METERED_COMMANDS_ENABLED", "true", "TENANT_BUDGET", "100/24h", "CUSTOMER_BUDGET", "2/24h")
	if _, _, err := programtest.Once(t, run, env); !errors.Is(err, boot.ErrPending) {
		t.Fatalf("without its tables: %v", err)
	}
	others := program(t, env)
	if migrated, err := others.Migrate(t.Context()); err != nil || !migrated {
		t.Fatal(migrated, err)
	}
	front := open(t, shop, programtest.Start(t, run, env))
	front.expect(front.send(http.MethodGet, "/readyz", ""), http.StatusOK, "")
	front.expect(front.send(http.MethodPut, "/v1/stocks/ticket", `{"stock":10,"admission":"token"}`), http.StatusOK, "")

	front.expect(front.add("ann", "", ""), http.StatusForbidden, "admission_required")
	front.expect(front.add("ann", front.mint("bob"), ""), http.StatusForbidden, "admission_refused")
	expectRows(t, shop, meteredRows{unspent: 1})

	token := front.mint("ann")
	accepted := front.expect(front.add("ann", token, "key-1"), http.StatusAccepted, "")
	if got, want := accepted.header.Get("RateLimit-Policy"), `"tenant";q=100;w=86400, "customer";q=2;w=86400`; got != want {
		t.Errorf("RateLimit-Policy: %s, want %s", got, want)
	}
	expectRows(t, shop, meteredRows{requests: 1, unspent: 1, spent: 1, rates: 2})
	if _, err := others.RunOnce(t.Context(), "drain"); err != nil {
		t.Fatal(err)
	}
	view := front.expect(front.send(http.MethodGet, fmt.Sprintf("/v1/requests/%s", accepted.fields["request_id"]), ""), http.StatusOK, "")
	if hold, _ := view.fields["reservation"].(map[string]any); view.fields["status"] != "done" || hold["status"] != "held" {
		t.Errorf("the request: %v", view.fields)
	}
	if again := front.expect(front.add("ann", token, "key-1"), http.StatusOK, ""); again.fields["request_id"] != accepted.fields["request_id"] {
		t.Errorf("repeated: %v", again.fields)
	}
	front.expect(front.add("ann", token, "key-2"), http.StatusForbidden, "admission_refused")
	expectRows(t, shop, meteredRows{requests: 1, unspent: 1, spent: 1, rates: 2})

	front.expect(front.add("ann", front.mint("ann"), ""), http.StatusAccepted, "")
	over := front.expect(front.add("ann", front.mint("ann"), ""), http.StatusTooManyRequests, "over_budget")
	if over.header.Get("Retry-After") == "" {
		t.Error("a caller over its budget has no Retry-After")
	}
	expectRows(t, shop, meteredRows{requests: 2, unspent: 2, spent: 2, rates: 2})
	if diff := cmp.Diff(programtest.Count{Unfinished: 1, Done: 1, Held: 1}, shop.Count()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	shop.Verify()
}

// Metered commands can be turned off, but not while a variant requires tokens.
// After that the answers do not contain rates.
func TestMeteredOffAgain(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	off, on := shop.Env(), shop.Env("METERED_COMMANDS_ENABLED", "true", "TENANT_BUDGET", "100/24h")
	if _, err := program(t, on).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	api := programtest.Start(t, run, on)
	front := open(t, shop, api)
	front.expect(front.send(http.MethodPut, "/v1/stocks/ticket", `{"stock":10,"admission":"token"}`), http.StatusOK, "")
	token := front.mint("ann")
	if _, _, err := programtest.Once(t, run, off); !isGuarded(err) {
		t.Fatalf("turned off during the sale: %v", err)
	}
	front.expect(front.send(http.MethodPut, "/v1/stocks/ticket", `{"admission":"open"}`), http.StatusOK, "")
	front.expect(front.add("ann", token, ""), http.StatusAccepted, "")
	expectRows(t, shop, meteredRows{requests: 1, unspent: 1, rates: 1})
	if err := api.Stop(); err != nil {
		t.Fatal(err)
	}

	front = open(t, shop, programtest.Start(t, run, off))
	front.expect(front.send(http.MethodPost, "/v1/admissions", `{"subject":"ann"}`), http.StatusNotFound, "not_found")
	if a := front.expect(front.add("bob", token, ""), http.StatusAccepted, ""); a.header.Get("RateLimit") != "" {
		t.Errorf("it shows rates: %v", a.header)
	}
	expectRows(t, shop, meteredRows{requests: 2, unspent: 1, rates: 1})
}

func isGuarded(err error) bool {
	_, ok := errors.AsType[*boot.GuardedError](err)
	return ok
}
