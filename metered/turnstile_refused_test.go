package metered_test

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
)

// fullAts are the moments in the rows of the tenant's rates; those that are full are left out.
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

// tokenRows are all rows of tokens as text, by their hash.
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

// refusals are why each of ten visits in a row is refused; nil for those that are let in.
var refusals = []error{
	nil, metered.ErrTokenMalformed, metered.ErrTokenUnknown, nil, metered.ErrTokenPurpose, metered.ErrTokenSubject,
	metered.ErrTokenUsed, metered.ErrTokenExpired, overOwnRate, nil,
}

var overOwnRate = new(metered.OverRateError)

// refusable makes the visits of a group, each with a token and a rate of its own and what it is to be refused for.
func (b *bundle) refusable(tokens []metered.Token, own []string) []metered.Visit {
	b.t.Helper()
	visits := make([]metered.Visit, len(tokens))
	for i := range visits {
		spend, hash := redeem(tokens[i]), sha256.Sum256([]byte(tokens[i].Plaintext()))
		if i%4 > 0 {
			b.setRate(own[i], i%4)
		}
		switch refusals[i%10] {
		case metered.ErrTokenMalformed:
			spend.Token = metered.ParseToken(tokens[i].Plaintext()[:51] + "!")
		case metered.ErrTokenUnknown:
			b.exec(`UPDATE expiring_tokens SET tenant_id = $1 WHERE token_hash = $2`, uuid.New(), hash[:])
		case metered.ErrTokenPurpose:
			spend.Purpose = "download"
		case metered.ErrTokenSubject:
			spend.Subject = "session-2"
		case metered.ErrTokenUsed:
			b.exec(`UPDATE expiring_tokens SET consumed_at = clock_timestamp() WHERE token_hash = $1`, hash[:])
		case metered.ErrTokenExpired:
			b.exec(`UPDATE expiring_tokens SET created_at = created_at - interval '2 h', expires_at = expires_at - interval '2 h' WHERE token_hash = $1`, hash[:])
		case overOwnRate:
			b.setRate(own[i], 23)
		}
		visits[i] = b.visitOf(b.tenant, &spend, hourly("shop", 1, 240), hourly(own[i], 2, 24))
	}
	return visits
}

// In a group of 200 some are refused for each of the reasons. They are told so, and nobody else pays: of what there was
// before, only the tokens and the rates of those who were let in are other than they were.
func TestTurnstileRefusesEach(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	tokens, own := b.mintMany(200), make([]string, 200)
	for i := range own {
		own[i] = fmt.Sprintf("customer-%03d", i)
	}
	b.setRate("shop", 6)
	visits := b.refusable(tokens, own)
	ratesBefore, tokensBefore := b.fullAts(), b.tokenRows()
	entries := b.enter(guarded, visits...)
	ratesAfter, tokensAfter := b.fullAts(), b.tokenRows()

	let := int64(0)
	for i, e := range entries {
		hash := fmt.Sprintf("%x", sha256.Sum256([]byte(tokens[i].Plaintext())))
		over, _ := errors.AsType[*metered.OverRateError](e.Err)
		if want := refusals[i%10]; !errors.Is(e.Err, want) && (over == nil || want != overOwnRate || over.Scope != own[i]) {
			t.Errorf("visit %d: %v, want %v", i, e.Err, want)
		}
		if e.Err == nil {
			let++
			if tokensAfter[hash] == tokensBefore[hash] {
				t.Errorf("visit %d was let in, and its token is unspent", i)
			}
			if ahead := ratesAfter[own[i]] - ratesBefore[own[i]]; i%4 > 0 && ahead != int64(2*time.Hour) {
				t.Errorf("visit %d was counted as %s in its own rate", i, time.Duration(ahead))
			}
			delete(ratesBefore, own[i])
			delete(ratesAfter, own[i])
			delete(tokensBefore, hash)
			delete(tokensAfter, hash)
		}
		if want := 240 - 60 - let; len(e.Standings) != 2 || e.Standings[0].Remaining != want {
			t.Errorf("visit %d: %+v, want %d of the shop's to remain", i, e.Standings, want)
		}
	}
	if ahead := ratesAfter["shop"] - ratesBefore["shop"]; let != 60 || ahead != let*int64(6*time.Minute) {
		t.Errorf("%d were let in, and %s counted", let, time.Duration(ahead))
	}
	delete(ratesBefore, "shop")
	delete(ratesAfter, "shop")
	if diff := cmp.Diff(ratesBefore, ratesAfter); diff != "" {
		t.Errorf("rates of who was refused (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(tokensBefore, tokensAfter); diff != "" {
		t.Errorf("tokens of who was refused (-before +after):\n%s", diff)
	}
}

// What a visit is treated as decides what it pays, whatever was taken beforehand.
func TestTurnstileTreatments(t *testing.T) {
	t.Parallel()
	for _, ahead := range []int{0, 5} {
		b := newBundle(t)
		if ahead > 0 {
			b.setRate("s", ahead)
		}
		tokens, before := b.mintMany(4), b.fullAts()
		visits := make([]metered.Visit, 4)
		for i, token := range tokens {
			visits[i] = b.visit(token, hourly("s", 1, 24))
		}
		for _, e := range b.enter(func(int) metered.Treatment { return metered.Ignored }, visits...) {
			if e.Err != nil || e.Standings != nil {
				t.Errorf("ignored: %+v", e)
			}
		}
		if diff := cmp.Diff(before, b.fullAts()); diff != "" {
			t.Errorf("the rate of who was ignored (-before +after):\n%s", diff)
		}
		if left := b.unspent(tokens); len(left) != 4 {
			t.Errorf("unspent after all were ignored: %v", left)
		}
		entries := b.enter(func(i int) metered.Treatment { return metered.Treatment(i % 3) }, visits...)
		if diff := cmp.Diff([][]int64{nil, {23 - int64(ahead)}, {22 - int64(ahead)}, nil}, remaining(entries)); diff != "" {
			t.Errorf("remaining (-want +got):\n%s", diff)
		}
		b.wantRates(map[string]int{"s": ahead + 2})
		if left := b.unspent(tokens); !cmp.Equal(left, []int{0, 1, 3}) {
			t.Errorf("unspent: %v, want all but that of who was guarded", left)
		}
	}
}

// A token that several of a group present is the first one's who is let in.
func TestTurnstileSameToken(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	tokens := b.mintMany(3)
	elsewhere := redeem(tokens[2])
	elsewhere.Subject = "session-2"
	b.setRate("spent", 24)
	entries := b.enter(guardedAt(0, 1, 2, 3, 4, 6, 7, 8, 9),
		b.visit(tokens[0], hourly("s", 1, 24)),                         // spends it
		b.visit(tokens[0], hourly("s", 1, 24)),                         // used
		b.visit(tokens[1], hourly("spent", 1, 24), hourly("s", 1, 24)), // refused for its rate
		b.visit(tokens[1], hourly("s", 1, 24)),                         // so this one spends it
		b.visit(tokens[1], hourly("s", 1, 24)),                         // used
		b.visit(tokens[2], hourly("s", 1, 24)),                         // counted, and spends nothing
		b.visitOf(b.tenant, &elsewhere, hourly("s", 1, 24)),            // not its own
		b.visitOf(uuid.New(), new(redeem(tokens[2]))),                  // another tenant's
		b.visit(tokens[2], hourly("s", 1, 24)),                         // spends it
		b.visit(tokens[2], hourly("s", 1, 24)),                         // used
	)
	used, refused := metered.ErrTokenUsed.Error(), []string{"", "", "over spent", "", "", "", metered.ErrTokenSubject.Error(), metered.ErrTokenUnknown.Error(), "", ""}
	refused[1], refused[4], refused[9] = used, used, used
	if diff := cmp.Diff(refused, errorsOf(entries)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if left := b.unspent(tokens); left != nil {
		t.Errorf("unspent: %v", left)
	}
	b.wantRates(map[string]int{"spent": 24, "s": 4})
	again := b.enter(guarded, b.visit(tokens[0]), b.visit(tokens[0]))
	if diff := cmp.Diff([]string{used, used}, errorsOf(again)); diff != "" {
		t.Errorf("in a later group (-want +got):\n%s", diff)
	}
}

// A token may have been minted for either of two purposes, and for no third.
func TestTurnstileOrPurpose(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for _, shared := range []bool{false, true} {
		for purpose, want := range map[string]error{"one": nil, "any": nil, "two": metered.ErrTokenPurpose} {
			minted, err := b.tokens.Mint(t.Context(), b.tenant, metered.Grant{Purpose: purpose, Subject: "s", TTL: time.Minute})
			b.must(err)
			either := &metered.Redemption{Purpose: "one", OrPurpose: "any", Subject: "s", Token: minted.Token}
			visits := []metered.Visit{b.visitOf(b.tenant, either)}
			if shared {
				visits = append(visits, b.visitOf(b.tenant, either))
			}
			if entries := b.enter(guarded, visits...); !errors.Is(entries[0].Err, want) {
				t.Errorf("minted for %q: %v, want %v", purpose, entries[0].Err, want)
			}
		}
	}
}

// What is no text for the database is bad input, whoever else is in the group; a token that is none is no bad input.
func TestVisitRefusesBadInput(t *testing.T) {
	t.Parallel()
	good := metered.Redemption{Purpose: "p", Subject: "s"}
	for field, change := range map[string]func(*metered.Redemption){
		"purpose":    func(r *metered.Redemption) { r.Purpose = "" },
		"or_purpose": func(r *metered.Redemption) { r.OrPurpose = "a\x00" },
		"subject":    func(r *metered.Redemption) { r.Subject = "a\xff" },
	} {
		bad := good
		change(&bad)
		if _, err := metered.NewVisit(uuid.New(), nil, &bad); !isInvalid(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	good.Token = metered.ParseToken("a\x00\xff")
	if _, err := metered.NewVisit(uuid.New(), nil, &good); err != nil {
		t.Error(err)
	}
}
