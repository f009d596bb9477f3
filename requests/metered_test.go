package requests_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/requests"
)

var meteredConfig = requests.IntakeConfig{Metered: true, Committers: 1}

// A variant that requires a token lets in whoever presents one that was minted for it or for all, and for them. Who is
// refused leaves no request, an unspent token and the rates as they were.
func TestAdmissionToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		variant string
		kind    requests.Kind
		status  requests.Status
	}{{"shoe", requests.Add, requests.Queued}, {"shoe", requests.Set, requests.Queued}, {"film", requests.Add, requests.Done}, {"film", requests.Set, requests.Done}} {
		t.Run(fmt.Sprint(c.kind, " ", c.variant), func(t *testing.T) {
			t.Parallel()
			b := newGuarded(t)
			in := b.Intake(meteredConfig)
			s := requests.Submission{Kind: c.kind, CartID: "a", VariantID: c.variant, Quantity: 2}
			b.spend("spent", 24)
			bobs, used, expired := show(b.mint(c.variant), "shop"), b.mint(c.variant), b.mint(c.variant)
			bobs.Subject = "bob"
			hash := sha256.Sum256([]byte(used.Plaintext()))
			b.Exec(`UPDATE expiring_tokens SET consumed_at = clock_timestamp() WHERE token_hash = $1`, hash[:])
			hash = sha256.Sum256([]byte(expired.Plaintext()))
			b.Exec(`UPDATE expiring_tokens SET created_at = created_at - interval '2 h', expires_at = expires_at - interval '2 h' WHERE token_hash = $1`, hash[:])
			good := b.mint(c.variant)
			for what, refused := range map[string]struct {
				pass requests.Pass
				want error
			}{
				"none":        {show(noToken, "shop"), requests.ErrTokenRequired},
				"rubbish":     {show(rubbish, "shop"), metered.ErrTokenMalformed},
				"cut":         {show(metered.ParseToken(good.Plaintext()[:51]), "shop"), metered.ErrTokenMalformed},
				"another's":   {bobs, metered.ErrTokenSubject},
				"for another": {show(b.mint("boot"), "shop"), metered.ErrTokenPurpose},
				"used":        {show(used, "shop"), metered.ErrTokenUsed},
				"expired":     {show(expired, "shop"), metered.ErrTokenExpired},
				"over rate":   {show(good, "shop", "spent"), new(metered.OverRateError)},
			} {
				a := b.submit(in, s, refused.pass)
				over, _ := errors.AsType[*metered.OverRateError](a.err)
				if !errors.Is(a.err, refused.want) && (over == nil || over.Scope != "spent" || what != "over rate") {
					t.Errorf("%s: %v, want %v", what, a.err, refused.want)
				}
				if over != nil && !cmp.Equal(a.remaining(), []int64{24, 0}) {
					t.Errorf("%s: %+v remain", what, a.remaining())
				}
				b.want(what, left{Spent: 1, Rates: map[string]int{"spent": 24}})
			}
			for i, token := range []metered.Token{good, b.mint("")} {
				a := b.submit(in, s, show(token, "shop", "ann"))
				if a.err != nil || a.request.Status != c.status || a.request.Kind != c.kind || !cmp.Equal(a.remaining(), []int64{23 - int64(i), 23 - int64(i)}) {
					t.Errorf("let in with token %d: %+v, %v", i, a.request, a.err)
				}
				b.want("let in", left{Requests: int64(i + 1), Spent: int64(i + 2), Rates: map[string]int{"spent": 24, "shop": i + 1, "ann": i + 1}})
			}
		})
	}
}

// An open variant is counted in the rates; a token that is presented for it stays unspent, whatever it is.
func TestOpenVariantSpendsNoToken(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	good, n := b.mint("sock"), 0
	for _, variant := range []string{"sock", "song", "unknown"} {
		for _, token := range []metered.Token{noToken, good, rubbish, b.mint("shoe")} {
			n++
			if a := b.submit(in, add("a", variant, ""), show(token, "shop")); a.err != nil || !cmp.Equal(a.remaining(), []int64{int64(24 - n)}) {
				t.Errorf("%s: %+v, %v", variant, a.standings, a.err)
			}
		}
	}
	b.want("open", left{Requests: 12, Rates: map[string]int{"shop": 12}})
}

// The same call again, with whatever token, counts and spends nothing, and is answered with the first request.
func TestMeteredReplay(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	first, other := b.mint("shoe"), b.mint("shoe")
	s := fingerprinted(add("a", "shoe", "key"), "body")
	once := left{Requests: 1, Spent: 1, Rates: map[string]int{"shop": 1, "full": 24}}
	b.spend("full", 24)
	a := b.submit(in, s, show(first, "shop"))
	must(t, a.err)
	for what, p := range map[string]requests.Pass{
		"the same": show(first, "shop"), "another": show(other, "shop"), "none": show(noToken, "shop"), "rubbish": show(rubbish, "shop"),
		"over its rate": show(first, "full"), "no rates": show(first),
	} {
		again := b.submit(in, s, p)
		if again.err != nil || again.request.RequestID != a.request.RequestID || again.standings != nil {
			t.Errorf("%s: %+v, %+v, %v; want the first request", what, again.request, again.standings, again.err)
		}
		b.want(what, once)
	}
	if again := b.submit(in, fingerprinted(s, "BODY"), show(other, "shop")); !errors.Is(again.err, requests.ErrKeyReused) {
		t.Errorf("another call under the key: %v", again.err)
	}
	b.want("another call", once)

	s.IdempotencyKey = "key-2" // in one group
	same := gatherCalls(t, b.Bench, meteredConfig, []call{{s, show(other, "shop")}, {s, show(other, "shop")}, {s, show(noToken, "shop")}}).run()
	for i, a := range same {
		if a.err != nil || a.request.RequestID != same[0].request.RequestID || (a.standings != nil) != (i == 0) {
			t.Errorf("caller %d of one group: %+v, %+v, %v", i, a.request, a.standings, a.err)
		}
	}
	b.want("in one group", left{Requests: 2, Spent: 2, Rates: map[string]int{"shop": 2, "full": 24}})
}

// Who is refused leaves the idempotency key free: the same call with a good token, or when there is room, is let in.
func TestRefusedLeavesKeyFree(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	token := b.mint("shoe")
	for i, p := range []requests.Pass{show(noToken, "shop"), show(rubbish, "shop"), show(token, "spent", "shop")} {
		b.spend("spent", 24)
		s := add("a", "shoe", fmt.Sprint("key-", i))
		if a := b.submit(in, s, p); a.err == nil {
			t.Fatalf("pass %d was let in", i)
		}
		b.spend("spent", 0)
		another := b.Intake(meteredConfig) // which has not seen the rate spent
		if a := b.submit(another, s, show(b.mint("shoe"), "spent", "shop")); a.err != nil {
			t.Errorf("after pass %d: %v", i, a.err)
		}
		b.spend("spent", 0)
		b.want("with a good one", left{Requests: int64(i + 1), Spent: int64(i + 1), Rates: map[string]int{"shop": i + 1}})
	}
}

// Of several calls under one key in one group the first is decided; where it is refused, those behind it are told so, or to
// come again: they were not decided.
func TestRefusedKeyInOneGroup(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	good := b.mint("shoe")
	answers := gatherCalls(t, b.Bench, meteredConfig, []call{
		{add("a", "shoe", "key"), show(rubbish, "shop")}, {add("a", "shoe", "key"), show(good, "shop")}, {add("a", "shoe", "key"), show(noToken, "shop")},
	}).run()
	if !errors.Is(answers[0].err, metered.ErrTokenMalformed) {
		t.Errorf("the first: %v", answers[0].err)
	}
	for _, a := range answers[1:] {
		wantRefusal(t, a.err, requests.RefusedError{Why: requests.WhyKey})
	}
	b.want("refused", left{})
	if a := b.submit(b.Intake(meteredConfig), add("a", "shoe", "key"), show(good, "shop")); a.err != nil {
		t.Errorf("again: %v", a.err)
	}
	b.want("again", left{Requests: 1, Spent: 1, Rates: map[string]int{"shop": 1}})
}

// Two calls that name the same request are one, also in one group.
func TestMeteredSameRequest(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	s := add("a", "shoe", "")
	s.RequestID = uuid.New()
	answers := gatherCalls(t, b.Bench, meteredConfig, []call{{s, show(b.mint("shoe"), "shop")}, {s, show(b.mint("shoe"), "shop")}}).run()
	for i, a := range answers {
		if a.err != nil || a.request.RequestID != s.RequestID {
			t.Errorf("caller %d: %+v, %v", i, a.request, a.err)
		}
	}
	b.want("one request", left{Requests: 1, Spent: 1, Rates: map[string]int{"shop": 1}})
}

// Where commands are not metered a pass is not looked at, and no table is needed.
func TestMeteredOff(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 10)
	b.Exec(`UPDATE inventory_stocks SET admission = 'token'`)
	in := b.Intake(requests.IntakeConfig{})
	p := show(rubbish, "shop")
	p.Rates[0].Window = time.Nanosecond
	r, standings, err := in.SubmitMetered(t.Context(), requests.Submission{TenantID: b.Tenant, CartID: "a", VariantID: "shoe", Quantity: 1}, p)
	if err != nil || standings != nil || r.Status != requests.Queued {
		t.Errorf("%+v, %+v, %v", r, standings, err)
	}
	if n := b.Int(`SELECT count(*) FROM pg_tables WHERE tablename IN ('budget_rates', 'expiring_tokens')`); n != 0 {
		t.Errorf("%d of metered's tables are there", n)
	}
}

// A pass that is no pass is bad input of its own caller.
func TestMeteredRefusesBadInput(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	rate, subject := show(noToken, ""), show(b.mint("shoe"), "shop")
	subject.Subject = "a\x00"
	for field, p := range map[string]requests.Pass{"scope": rate, "subject": subject, "rates": show(noToken, "a", "b", "c", "d", "e")} {
		a := b.submit(in, add("a", "shoe", ""), p)
		if invalid, ok := errors.AsType[*metered.InvalidError](a.err); !ok || invalid.Field != field {
			t.Errorf("%s: %v", field, a.err)
		}
	}
	b.want("bad input", left{})
}

// A rate that was found spent is not asked again until there can be more, by this process; the keys of earlier calls are
// answered all the same.
func TestSpentRateIsNoted(t *testing.T) {
	t.Parallel()
	b := newGuarded(t)
	in := b.Intake(meteredConfig)
	known := add("a", "sock", "key")
	first := b.submit(in, known, show(noToken, "shop", "spent"))
	must(t, first.err)
	b.spend("spent", 24)
	for _, what := range []string{"by the database", "by the note"} {
		a := b.submit(in, add("a", "sock", ""), show(noToken, "shop", "spent"))
		b.spend("spent", 0)
		over, ok := errors.AsType[*metered.OverRateError](a.err)
		if !ok || over.Scope != "spent" || over.Wait <= 0 || over.Wait > time.Hour || a.standings[1] != over.Standing {
			t.Errorf("%s: %v, %+v", what, a.err, a.standings)
		}
	}
	if a := b.submit(in, add("a", "sock", ""), show(noToken, "shop", "spent")); a.standings[0] != requests.Unasked {
		t.Errorf("noted: %+v of a rate that was not looked at", a.standings[0])
	}
	if again := b.submit(in, known, show(noToken, "shop", "spent")); again.err != nil || again.request.RequestID != first.request.RequestID || again.standings != nil {
		t.Errorf("a known key: %+v, %v", again.request, again.err)
	}
	if a := b.submit(in, add("a", "sock", ""), show(noToken, "shop")); a.err != nil {
		t.Errorf("another rate: %v", a.err)
	}
}

// To ask for no more than the cart holds already takes no token, and spends none.
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
	hold("film", 3, "-1 minute") // which is over
	set := func(cart, variant string, quantity int32) requests.Submission {
		return requests.Submission{Kind: requests.Set, CartID: cart, VariantID: variant, Quantity: quantity}
	}
	for _, c := range []struct {
		submission requests.Submission
		let        bool
	}{
		{set("a", "shoe", 1), true}, {set("a", "shoe", 3), true}, {set("a", "shoe", 4), false},
		{set("b", "shoe", 1), false}, {set("a", "film", 1), false}, {add("a", "shoe", ""), false},
	} {
		for _, token := range []metered.Token{noToken, rubbish} {
			if a := b.submit(in, c.submission, show(token)); (a.err == nil) != c.let {
				t.Errorf("%+v: %v", c.submission, a.err)
			}
		}
	}
	b.want("without tokens", left{Requests: 4})
	must(t, b.submit(in, set("a", "shoe", 2), show(b.mint("shoe"))).err)
	b.want("with one that is not needed", left{Requests: 5})
	must(t, b.submit(in, set("a", "shoe", 4), show(b.mint("shoe"))).err)
	b.want("with one that is", left{Requests: 6, Spent: 1})
}
