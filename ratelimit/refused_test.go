package ratelimit_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// fullAts returns the times in the rows of the tenant's rates, without those of
// full rates.
func (b *bundle) fullAts() map[string]int64 {
	b.t.Helper()
	found, err := b.db.Query(b.t.Context(), `SELECT scope, full_at FROM budget_rates WHERE tenant_id = $1 AND full_at > extract(epoch FROM clock_timestamp()) * 1e9`, b.tenant)
	b.must(err)
	rows := make(map[string]int64)
	var scope string
	var at int64
	_, err = pgx.ForEachRow(found, []any{&scope, &at}, func() error { rows[scope] = at; return nil })
	b.must(err)
	return rows
}

// tokenRows returns all rows of tokens as text, by their hash.
func (b *bundle) tokenRows() map[string]string {
	b.t.Helper()
	found, err := b.db.Query(b.t.Context(), `SELECT encode(token_hash, 'hex'), t::text FROM expiring_tokens t`)
	b.must(err)
	rows := make(map[string]string)
	var hash, text string
	_, err = pgx.ForEachRow(found, []any{&hash, &text}, func() error { rows[hash] = text; return nil })
	b.must(err)
	return rows
}

// refusals are the errors of ten consecutive items; nil for those that are
// counted.
var refusals = []error{
	nil, errMalformed, errUnknown, nil, errPurpose, errSubject,
	errUsed, errExpired, overOwnRate, nil,
}

var overOwnRate = new(ratelimit.ExceededError)

// refusable makes the items of a batch. Each has a token, a separate rate, and
// the cause of its refusal.
func (b *bundle) refusable(tokens []metered.Token, own []string) []item {
	b.t.Helper()
	items := make([]item, len(tokens))
	for i := range items {
		spend, hash := redeem(tokens[i]), sha256.Sum256([]byte(tokens[i].Plaintext()))
		if i%4 > 0 {
			b.setRate(own[i], i%4)
		}
		switch refusals[i%10] {
		case errMalformed:
			spend.Token = metered.ParseToken(tokens[i].Plaintext()[:51] + "!")
		case errUnknown:
			b.exec(`UPDATE expiring_tokens SET tenant_id = $1 WHERE token_hash = $2`, uuid.New(), hash[:])
		case errPurpose:
			spend.Purpose = "download"
		case errSubject:
			spend.Subject = "session-2"
		case errUsed:
			b.exec(`UPDATE expiring_tokens SET consumed_at = clock_timestamp() WHERE token_hash = $1`, hash[:])
		case errExpired:
			b.exec(`UPDATE expiring_tokens SET created_at = created_at - interval '2 h', expires_at = expires_at - interval '2 h' WHERE token_hash = $1`, hash[:])
		case overOwnRate:
			b.setRate(own[i], 23)
		}
		items[i] = b.itemOf(b.tenant, &spend, hourly("shop", 1, 240), hourly(own[i], 2, 24))
	}
	return items
}

// In a batch of 200 some items are refused for each of the reasons. Their
// results have the reason, and only the tokens and rates of counted items have
// changed.
func TestBatchRefusesEach(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	tokens, own := b.mintMany(200), make([]string, 200)
	for i := range own {
		own[i] = fmt.Sprintf("customer-%03d", i)
	}
	b.setRate("shop", 6)
	items := b.refusable(tokens, own)
	ratesBefore, tokensBefore := b.fullAts(), b.tokenRows()
	results := b.decide(redeemAll, items...)
	ratesAfter, tokensAfter := b.fullAts(), b.tokenRows()

	counted := int64(0)
	for i, e := range results {
		hash := fmt.Sprintf("%x", sha256.Sum256([]byte(tokens[i].Plaintext())))
		over, _ := errors.AsType[*ratelimit.ExceededError](e.Err)
		if want := refusals[i%10]; !errors.Is(e.Err, want) && (over == nil || want != overOwnRate || over.Scope != own[i]) {
			t.Errorf("item %d: %v, want %v", i, e.Err, want)
		}
		if e.Err == nil {
			counted++
			if tokensAfter[hash] == tokensBefore[hash] {
				t.Errorf("item %d was counted, but its token is not redeemed", i)
			}
			if ahead := ratesAfter[own[i]] - ratesBefore[own[i]]; i%4 > 0 && ahead != int64(2*time.Hour) {
				t.Errorf("item %d was counted as %s in its own rate", i, time.Duration(ahead))
			}
			delete(ratesBefore, own[i])
			delete(ratesAfter, own[i])
			delete(tokensBefore, hash)
			delete(tokensAfter, hash)
		}
		if want := 240 - 60 - counted; len(e.States) != 2 || e.States[0].Remaining != want {
			t.Errorf("item %d: %+v, want %d of the shop's rate to remain", i, e.States, want)
		}
	}
	if ahead := ratesAfter["shop"] - ratesBefore["shop"]; counted != 60 || ahead != counted*int64(6*time.Minute) {
		t.Errorf("%d were counted, and %s", counted, time.Duration(ahead))
	}
	delete(ratesBefore, "shop")
	delete(ratesAfter, "shop")
	if diff := cmp.Diff(ratesBefore, ratesAfter); diff != "" {
		t.Errorf("rates of refused items (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(tokensBefore, tokensAfter); diff != "" {
		t.Errorf("tokens of refused items (-before +after):\n%s", diff)
	}
}

// The mode of an item determines what is charged, whatever was taken before.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, ahead := range []int{0, 5} {
		b := newBundle(t)
		if ahead > 0 {
			b.setRate("s", ahead)
		}
		tokens, before := b.mintMany(4), b.fullAts()
		items := make([]item, 4)
		for i, token := range tokens {
			items[i] = b.item(token, hourly("s", 1, 24))
		}
		for _, e := range b.decide(func(int) itemMode { return skipItem }, items...) {
			if e.Err != nil || e.States != nil {
				t.Errorf("ignored: %+v", e)
			}
		}
		if diff := cmp.Diff(before, b.fullAts()); diff != "" {
			t.Errorf("the rate of skipped items (-before +after):\n%s", diff)
		}
		if left := b.unspent(tokens); len(left) != 4 {
			t.Errorf("not redeemed after all were ignored: %v", left)
		}
		results := b.decide(func(i int) itemMode { return itemMode(i % 3) }, items...)
		if diff := cmp.Diff([][]int64{nil, {23 - int64(ahead)}, {22 - int64(ahead)}, nil}, remaining(results)); diff != "" {
			t.Errorf("remaining (-want +got):\n%s", diff)
		}
		b.wantRates(map[string]int{"s": ahead + 2})
		if left := b.unspent(tokens); !cmp.Equal(left, []int{0, 1, 3}) {
			t.Errorf("not redeemed: %v, want all but the token of the redeeming item", left)
		}
	}
}

// If several items of a batch present one token, the first one that is counted
// redeems it.
func TestBatchSameToken(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	tokens := b.mintMany(3)
	elsewhere := redeem(tokens[2])
	elsewhere.Subject = "session-2"
	b.setRate("spent", 24)
	results := b.decide(redeemAt(0, 1, 2, 3, 4, 6, 7, 8, 9),
		b.item(tokens[0], hourly("s", 1, 24)),                         // spends it
		b.item(tokens[0], hourly("s", 1, 24)),                         // used
		b.item(tokens[1], hourly("spent", 1, 24), hourly("s", 1, 24)), // refused because of its rate
		b.item(tokens[1], hourly("s", 1, 24)),                         // so this item redeems it
		b.item(tokens[1], hourly("s", 1, 24)),                         // used
		b.item(tokens[2], hourly("s", 1, 24)),                         // counted, redeems nothing
		b.itemOf(b.tenant, &elsewhere, hourly("s", 1, 24)),            // not minted for it
		b.itemOf(uuid.New(), new(redeem(tokens[2]))),                  // another tenant's
		b.item(tokens[2], hourly("s", 1, 24)),                         // spends it
		b.item(tokens[2], hourly("s", 1, 24)),                         // used
	)
	used, refused := errUsed.Error(), []string{"", "", "over spent", "", "", "", errSubject.Error(), errUnknown.Error(), "", ""}
	refused[1], refused[4], refused[9] = used, used, used
	if diff := cmp.Diff(refused, errorsOf(results)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if left := b.unspent(tokens); left != nil {
		t.Errorf("unspent: %v", left)
	}
	b.wantRates(map[string]int{"spent": 24, "s": 4})
	again := b.decide(redeemAll, b.item(tokens[0]), b.item(tokens[0]))
	if diff := cmp.Diff([]string{used, used}, errorsOf(again)); diff != "" {
		t.Errorf("in a later group (-want +got):\n%s", diff)
	}
}

// The token may be minted for either of two purposes, but no third.
func TestBatchOrPurpose(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for _, shared := range []bool{false, true} {
		for purpose, want := range map[string]error{"one": nil, "any": nil, "two": errPurpose} {
			minted, err := b.tokens.Mint(t.Context(), b.tenant, metered.Grant{Purpose: purpose, Subject: "s", TTL: time.Minute})
			b.must(err)
			either := &metered.Redemption{Purpose: "one", OrPurpose: "any", Subject: "s", Token: minted[0].Token}
			items := []item{b.itemOf(b.tenant, either)}
			if shared {
				items = append(items, b.itemOf(b.tenant, either))
			}
			if results := b.decide(redeemAll, items...); !errors.Is(results[0].Err, want) {
				t.Errorf("minted for %q: %v, want %v", purpose, results[0].Err, want)
			}
		}
	}
}
