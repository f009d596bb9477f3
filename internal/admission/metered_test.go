package admission_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
)

var meteredConfig = admission.IntakeConfig{Metered: true, Committers: 1}

// A variant that requires a token admits a caller that presents one. The token
// must have been minted for the variant or for all variants, and for the
// caller. For a refused caller no request is stored, its token is not redeemed,
// and the rates do not change.
func TestAdmissionToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		variant string
		kind    requests.Kind
		status  requests.Status
	}{{"shoe", requests.Add, requests.Queued}, {"shoe", requests.Set, requests.Queued}, {"film", requests.Add, requests.Done}, {"film", requests.Set, requests.Queued}} {
		t.Run(fmt.Sprint(c.kind, " ", c.variant), func(t *testing.T) {
			t.Parallel()
			b := newGuarded(t)
			in := b.Intake(meteredConfig)
			s := requestrows.Submission{Kind: c.kind, CartID: "a", VariantID: c.variant, Quantity: 2}
			b.spend("spent", 24)
			bobs, used, expired := credentials(b.mint(c.variant), "shop"), b.mint(c.variant), b.mint(c.variant)
			bobs.Subject = "bob"
			hash := sha256.Sum256([]byte(used.Plaintext()))
			b.Exec(`UPDATE expiring_tokens SET consumed_at = clock_timestamp() WHERE token_hash = $1`, hash[:])
			hash = sha256.Sum256([]byte(expired.Plaintext()))
			b.Exec(`UPDATE expiring_tokens SET created_at = created_at - interval '2 h', expires_at = expires_at - interval '2 h' WHERE token_hash = $1`, hash[:])
			good := b.mint(c.variant)
			for what, refused := range map[string]struct {
				credentials admission.Credentials
				want        error
			}{
				"none":        {credentials(noToken, "shop"), admission.ErrTokenRequired},
				"rubbish":     {credentials(malformedToken, "shop"), tokens.ErrMalformed},
				"cut":         {credentials(metered.ParseToken(good.Plaintext()[:51]), "shop"), tokens.ErrMalformed},
				"another's":   {bobs, tokens.ErrSubject},
				"for another": {credentials(b.mint("boot"), "shop"), tokens.ErrPurpose},
				"used":        {credentials(used, "shop"), tokens.ErrUsed},
				"expired":     {credentials(expired, "shop"), tokens.ErrExpired},
				"over rate":   {credentials(good, "shop", "spent"), new(ratelimit.ExceededError)},
			} {
				a := b.submit(in, s, refused.credentials)
				over, _ := errors.AsType[*ratelimit.ExceededError](a.err)
				if !errors.Is(a.err, refused.want) && (over == nil || over.Scope != "spent" || what != "over rate") {
					t.Errorf("%s: %v, want %v", what, a.err, refused.want)
				}
				if over != nil && !cmp.Equal(a.remaining(), []int64{24, 0}) {
					t.Errorf("%s: %+v remain", what, a.remaining())
				}
				b.want(what, effects{Spent: 1, Rates: map[string]int{"spent": 24}})
			}
			for i, token := range []metered.Token{good, b.mint("")} {
				a := b.submit(in, s, credentials(token, "shop", "ann"))
				if a.err != nil || a.request.Status != c.status || a.request.Kind != c.kind || !cmp.Equal(a.remaining(), []int64{23 - int64(i), 23 - int64(i)}) {
					t.Errorf("admitted with token %d: %+v, %v", i, a.request, a.err)
				}
				b.want("admitted", effects{Requests: int64(i + 1), Spent: int64(i + 2), Rates: map[string]int{"spent": 24, "shop": i + 1, "ann": i + 1}})
			}
		})
	}
}

// A request for an open variant is counted in the rates. A token that is
// presented for it is ignored: it is not redeemed, and may be invalid.
func TestOpenVariantSpendsNoToken(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	good, n := b.mint("sock"), 0
	for _, variant := range []string{"sock", "song", "unknown"} {
		for _, token := range []metered.Token{noToken, good, malformedToken, b.mint("shoe")} {
			n++
			if a := b.submit(in, add("a", variant, ""), credentials(token, "shop")); a.err != nil || !cmp.Equal(a.remaining(), []int64{int64(24 - n)}) {
				t.Errorf("%s: %+v, %v", variant, a.states, a.err)
			}
		}
	}
	b.want("open", effects{Requests: 12, Rates: map[string]int{"shop": 12}})
}

// A repetition of a call, with any token, is not counted and redeems nothing.
// It is answered with the first request.
func TestMeteredReplay(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	first, other := b.mint("shoe"), b.mint("shoe")
	s := fingerprinted(add("a", "shoe", "key"), "body")
	once := effects{Requests: 1, Spent: 1, Rates: map[string]int{"shop": 1, "full": 24}}
	b.spend("full", 24)
	a := b.submit(in, s, credentials(first, "shop"))
	pgtest.Must(t, a.err)
	for what, p := range map[string]admission.Credentials{
		"the same": credentials(first, "shop"), "another": credentials(other, "shop"), "none": credentials(noToken, "shop"), "rubbish": credentials(malformedToken, "shop"),
		"over its rate": credentials(first, "full"), "no rates": credentials(first),
	} {
		again := b.submit(in, s, p)
		if again.err != nil || again.request.RequestID != a.request.RequestID || again.states != nil {
			t.Errorf("%s: %+v, %+v, %v; want the first request", what, again.request, again.states, again.err)
		}
		b.want(what, once)
	}
	if again := b.submit(in, fingerprinted(s, "BODY"), credentials(other, "shop")); !errors.Is(again.err, requestrows.ErrKeyReused) {
		t.Errorf("another call under the key: %v", again.err)
	}
	b.want("another call", once)

	s.IdempotencyKey = "key-2" // in one group
	same := gatherCalls(t, b.Fixture, meteredConfig, []call{{s, credentials(other, "shop")}, {s, credentials(other, "shop")}, {s, credentials(noToken, "shop")}}).run()
	for i, a := range same {
		if a.err != nil || a.request.RequestID != same[0].request.RequestID || (a.states != nil) != (i == 0) {
			t.Errorf("caller %d of one group: %+v, %+v, %v", i, a.request, a.states, a.err)
		}
	}
	b.want("in one group", effects{Requests: 2, Spent: 2, Rates: map[string]int{"shop": 2, "full": 24}})
}

// A refusal leaves the idempotency key free. The same call is admitted with a
// good token, or when the rate has units left.
func TestRefusedLeavesKeyFree(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	token := b.mint("shoe")
	for i, p := range []admission.Credentials{credentials(noToken, "shop"), credentials(malformedToken, "shop"), credentials(token, "spent", "shop")} {
		b.spend("spent", 24)
		s := add("a", "shoe", fmt.Sprint("key-", i))
		if a := b.submit(in, s, p); a.err == nil {
			t.Fatalf("attempt %d was admitted", i)
		}
		b.spend("spent", 0)
		another := b.Intake(meteredConfig) // this intake has not found the rate exhausted
		if a := b.submit(another, s, credentials(b.mint("shoe"), "spent", "shop")); a.err != nil {
			t.Errorf("after attempt %d: %v", i, a.err)
		}
		b.spend("spent", 0)
		b.want("with a good one", effects{Requests: int64(i + 1), Spent: int64(i + 1), Rates: map[string]int{"shop": i + 1}})
	}
}

// Of several calls under one key in one group, the first is decided. If it is
// refused, the others receive the same error, or a RefusedError because they
// were not decided.
func TestRefusedKeyInOneGroup(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	good := b.mint("shoe")
	answers := gatherCalls(t, b.Fixture, meteredConfig, []call{
		{add("a", "shoe", "key"), credentials(malformedToken, "shop")}, {add("a", "shoe", "key"), credentials(good, "shop")}, {add("a", "shoe", "key"), credentials(noToken, "shop")},
	}).run()
	if !errors.Is(answers[0].err, tokens.ErrMalformed) {
		t.Errorf("the first: %v", answers[0].err)
	}
	for _, a := range answers[1:] {
		wantRefusal(t, a.err, admission.RefusedError{Why: admission.WhyKey})
	}
	b.want("refused", effects{})
	if a := b.submit(b.Intake(meteredConfig), add("a", "shoe", "key"), credentials(good, "shop")); a.err != nil {
		t.Errorf("again: %v", a.err)
	}
	b.want("again", effects{Requests: 1, Spent: 1, Rates: map[string]int{"shop": 1}})
}

// Two calls that name the same request are one call, even in one group.
func TestMeteredSameRequest(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	s := add("a", "shoe", "")
	s.RequestID = uuid.New()
	answers := gatherCalls(t, b.Fixture, meteredConfig, []call{{s, credentials(b.mint("shoe"), "shop")}, {s, credentials(b.mint("shoe"), "shop")}}).run()
	for i, a := range answers {
		if a.err != nil || a.request.RequestID != s.RequestID {
			t.Errorf("caller %d: %+v, %v", i, a.request, a.err)
		}
	}
	b.want("one request", effects{Requests: 1, Spent: 1, Rates: map[string]int{"shop": 1}})
}

// If the intake is not metered, it ignores credentials and needs no table of
// package metered.
func TestMeteredOff(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 10)
	b.Exec(`UPDATE inventory_stocks SET admission = 'token'`)
	in := b.Intake(admission.IntakeConfig{})
	p := credentials(malformedToken, "shop")
	p.Rates[0].Window = time.Nanosecond
	r, states, err := in.SubmitMetered(t.Context(), requestrows.Submission{TenantID: b.Tenant, CartID: "a", VariantID: "shoe", Quantity: 1}, p)
	if err != nil || states != nil || r.Status != requests.Queued {
		t.Errorf("%+v, %+v, %v", r, states, err)
	}
	if n := b.Int(`SELECT count(*) FROM pg_tables WHERE tablename IN ('budget_rates', 'expiring_tokens')`); n != 0 {
		t.Errorf("%d tables of package metered exist", n)
	}
}

// Invalid credentials cause an InvalidError for their caller.
func TestMeteredRefusesBadInput(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	rate, subject := credentials(noToken, ""), credentials(b.mint("shoe"), "shop")
	subject.Subject = "a\x00"
	for field, p := range map[string]admission.Credentials{"scope": rate, "subject": subject, "rates": credentials(noToken, "a", "b", "c", "d", "e")} {
		a := b.submit(in, add("a", "shoe", ""), p)
		got := ""
		if bad, ok := errors.AsType[*invalid.Error](a.err); ok {
			got = bad.Field
		}
		if bad, ok := errors.AsType[*ratelimit.InvalidError](a.err); ok {
			got = bad.Field
		}
		if got != field {
			t.Errorf("%s: %v", field, a.err)
		}
	}
	b.want("bad input", effects{})
}

// After a process has found a rate exhausted, it does not read the rate again
// until units may be left. It still answers the keys of earlier calls.
func TestExhaustedRateIsCached(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	known := add("a", "sock", "key")
	first := b.submit(in, known, credentials(noToken, "shop", "spent"))
	pgtest.Must(t, first.err)
	b.spend("spent", 24)
	for _, what := range []string{"by the database", "by the cache"} {
		a := b.submit(in, add("a", "sock", ""), credentials(noToken, "shop", "spent"))
		b.spend("spent", 0)
		over, ok := errors.AsType[*ratelimit.ExceededError](a.err)
		if !ok || over.Scope != "spent" || over.Wait <= 0 || over.Wait > time.Hour || a.states[1] != over.State {
			t.Errorf("%s: %v, %+v", what, a.err, a.states)
		}
	}
	if a := b.submit(in, add("a", "sock", ""), credentials(noToken, "shop", "spent")); a.states[0] != admission.UnknownState {
		t.Errorf("from the cache: %+v of a rate that was not read", a.states[0])
	}
	if again := b.submit(in, known, credentials(noToken, "shop", "spent")); again.err != nil || again.request.RequestID != first.request.RequestID || again.states != nil {
		t.Errorf("a known key: %+v, %v", again.request, again.err)
	}
	if a := b.submit(in, add("a", "sock", ""), credentials(noToken, "shop")); a.err != nil {
		t.Errorf("another rate: %v", a.err)
	}
}

// A Set to at most the quantity that the cart already holds needs no token, and
// redeems none.
func TestLoweringTakesNoToken(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	hold := func(variant string, quantity int, expires string) {
		b.Exec(`INSERT INTO reservations
				(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
			SELECT $1, gen_random_uuid(), $2, $3, 'a', $4, now - interval '1 hour', now - interval '1 hour', now + $5::interval
			FROM clock_timestamp() AS now`, b.Tenant, inventory.Kind, variant, quantity, expires)
	}
	hold("shoe", 2, "1 hour")
	hold("shoe", 1, "1 hour")
	hold("film", 3, "-1 minute") // past its deadline
	set := func(cart, variant string, quantity int32) requestrows.Submission {
		return requestrows.Submission{Kind: requests.Set, CartID: cart, VariantID: variant, Quantity: quantity}
	}
	for _, c := range []struct {
		submission requestrows.Submission
		let        bool
	}{
		{set("a", "shoe", 1), true}, {set("a", "shoe", 3), true}, {set("a", "shoe", 4), false},
		{set("b", "shoe", 1), false}, {set("a", "film", 1), false}, {add("a", "shoe", ""), false},
	} {
		for _, token := range []metered.Token{noToken, malformedToken} {
			if a := b.submit(in, c.submission, credentials(token)); (a.err == nil) != c.let {
				t.Errorf("%+v: %v", c.submission, a.err)
			}
		}
	}
	b.want("without tokens", effects{Requests: 4})
	pgtest.Must(t, b.submit(in, set("a", "shoe", 2), credentials(b.mint("shoe"))).err)
	b.want("with a token that is not needed", effects{Requests: 5})
	pgtest.Must(t, b.submit(in, set("a", "shoe", 4), credentials(b.mint("shoe"))).err)
	b.want("with a token that is needed", effects{Requests: 6, Spent: 1})
}
