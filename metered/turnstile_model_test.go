package metered_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/metered"
)

// gatekeeper is a turnstile as anybody would write it: it keeps its tokens and rates in memory, and decides one visitor after
// the other. Rates are told in whole hours, of which none passes by itself.
type gatekeeper struct {
	tokens []*modelToken
	hours  map[modelScope]int // until it is full again
}

type modelToken struct {
	metered.Grant
	tenant           uuid.UUID
	plaintext        metered.Token
	spent, isExpired bool
}

type modelScope struct {
	tenant uuid.UUID
	scope  string
}

// visitor is a visit with all that was put into it.
type visitor struct {
	metered.Visit
	tenant    uuid.UUID
	rates     []metered.Rate
	spend     *metered.Redemption
	treatment metered.Treatment
}

func hoursOf(r metered.Rate) (cost, window, unit int) {
	window = int(r.Window / time.Hour)
	unit = window / int(r.Limit)
	return unit * int(r.Amount), window, unit
}

// shorten lets no rate be further from full than the longest window that the group asks of it.
func (g *gatekeeper) shorten(group []visitor) {
	longest := make(map[modelScope]int)
	for _, v := range group {
		for _, r := range v.rates {
			_, window, _ := hoursOf(r)
			at := modelScope{v.tenant, r.Scope}
			longest[at] = max(longest[at], window)
		}
	}
	for at, window := range longest {
		g.hours[at] = min(g.hours[at], window)
	}
}

// decide says what has to become of the visitor, and lets it in if nothing speaks against it.
func (g *gatekeeper) decide(v *visitor) (want metered.Entry) {
	if v.treatment == metered.Ignored {
		return want
	}
	token, refused := g.find(v)
	before := make(map[modelScope]int)
	var over *metered.OverRateError
	for _, r := range v.rates {
		at := modelScope{v.tenant, r.Scope}
		if _, ok := before[at]; !ok {
			before[at] = g.hours[at]
		}
		if cost, window, _ := hoursOf(r); over == nil && (r.Amount > r.Limit || g.hours[at]+cost > window) {
			over = &metered.OverRateError{Rate: r}
		} else if over == nil {
			g.hours[at] += cost
		}
	}
	let := refused == nil && over == nil
	if !let {
		maps.Copy(g.hours, before)
	}
	for _, r := range v.rates {
		level := g.hours[modelScope{v.tenant, r.Scope}]
		cost, window, unit := hoursOf(r)
		s := metered.Standing{Remaining: int64(max(0, (window-level)/unit)), Reset: time.Duration(level) * time.Hour}
		switch {
		case let:
		case r.Amount > r.Limit:
			s.Wait = -1
		default:
			s.Wait = time.Duration(max(0, level+cost-window)) * time.Hour
		}
		want.Standings = append(want.Standings, s)
	}
	switch {
	case refused != nil:
		want.Err = refused
	case over != nil:
		want.Err = over
	case token != nil:
		token.spent = true
	}
	return want
}

// find is the token that the visitor is to spend, or why it can't; none for one who is to spend none.
func (g *gatekeeper) find(v *visitor) (*modelToken, error) {
	if v.treatment != metered.Guarded {
		return nil, nil
	}
	if v.spend == nil || !v.spend.Token.WellFormed() {
		return nil, metered.ErrTokenMalformed
	}
	for _, k := range g.tokens {
		if k.tenant != v.tenant || k.plaintext.Plaintext() != v.spend.Token.Plaintext() {
			continue
		}
		switch {
		case k.Purpose != v.spend.Purpose && k.Purpose != v.spend.OrPurpose:
			return nil, metered.ErrTokenPurpose
		case k.Subject != v.spend.Subject:
			return nil, metered.ErrTokenSubject
		case k.spent:
			return nil, metered.ErrTokenUsed
		case k.isExpired:
			return nil, metered.ErrTokenExpired
		}
		return k, nil
	}
	return nil, metered.ErrTokenUnknown
}

// drawVisitor draws one who may show anything.
func (g *gatekeeper) drawVisitor(t *rapid.T, b *bundle, tenants []uuid.UUID) visitor {
	v := visitor{tenant: rapid.SampledFrom(tenants).Draw(t, "tenant"), treatment: metered.Treatment(rapid.IntRange(0, 2).Draw(t, "treatment"))}
	for range rapid.IntRange(0, 3).Draw(t, "rates") {
		window := rapid.SampledFrom([]int64{6, 12, 24}).Draw(t, "window")
		limit := rapid.SampledFrom([]int64{1, 2, 3, 6}).Draw(t, "limit")
		v.rates = append(v.rates, metered.Rate{
			Scope:  fmt.Sprint("scope-", rapid.IntRange(0, 4).Draw(t, "scope")),
			Amount: rapid.Int64Range(1, limit+1).Draw(t, "amount"), Limit: limit, Window: time.Duration(window) * time.Hour,
		})
	}
	if presents := rapid.IntRange(-2, len(g.tokens)-1).Draw(t, "token"); presents > -2 {
		v.spend = &metered.Redemption{
			Purpose: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "purpose"), OrPurpose: rapid.SampledFrom([]string{"", "p", "any"}).Draw(t, "or"),
			Subject: rapid.SampledFrom([]string{"s", "s", "s", "z"}).Draw(t, "subject"), Token: rubbish,
		}
		if presents >= 0 {
			v.spend.Token = g.tokens[presents].plaintext
		}
	}
	v.Visit = b.visitOf(v.tenant, v.spend, v.rates...)
	return v
}

// mint makes some tokens of a tenant, of which some have expired.
func (g *gatekeeper) mint(t *rapid.T, b *bundle, tenants []uuid.UUID) {
	for range rapid.IntRange(1, 4).Draw(t, "minted") {
		k := &modelToken{
			tenant: rapid.SampledFrom(tenants).Draw(t, "tenant"), isExpired: rapid.IntRange(0, 4).Draw(t, "expired") == 0,
			Grant: metered.Grant{Purpose: rapid.SampledFrom([]string{"p", "q", "any"}).Draw(t, "purpose"), Subject: "s", TTL: time.Hour},
		}
		minted, err := b.tokens.Mint(b.t.Context(), k.tenant, k.Grant)
		b.must(err)
		k.plaintext = minted.Token
		if k.isExpired {
			hash := sha256.Sum256([]byte(k.plaintext.Plaintext()))
			b.exec(`UPDATE expiring_tokens SET created_at = created_at - interval '2 h', expires_at = expires_at - interval '2 h' WHERE token_hash = $1`, hash[:])
		}
		g.tokens = append(g.tokens, k)
	}
}

// sameError compares errors of entries: a rate's by what was asked for.
func sameError(got, want error) bool {
	overGot, _ := errors.AsType[*metered.OverRateError](got)
	overWant, _ := errors.AsType[*metered.OverRateError](want)
	if overGot == nil || overWant == nil {
		return errors.Is(got, want)
	}
	return overGot.Rate == overWant.Rate
}

// Random groups, tokens and passing time against the naive gatekeeper.
func TestTurnstileModel(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	tenants := []uuid.UUID{b.tenant, uuid.New()}
	rapid.Check(t, func(t *rapid.T) {
		b.exec(`TRUNCATE expiring_tokens, budget_rates`)
		g := &gatekeeper{hours: make(map[modelScope]int)}
		t.Repeat(map[string]func(*rapid.T){
			"mint": func(t *rapid.T) { g.mint(t, b, tenants) },
			"group": func(t *rapid.T) {
				group := make([]visitor, rapid.IntRange(1, 12).Draw(t, "members"))
				visits := make([]metered.Visit, len(group))
				for i := range group {
					group[i] = g.drawVisitor(t, b, tenants)
					visits[i] = group[i].Visit
				}
				g.shorten(group)
				for i, got := range b.enter(func(i int) metered.Treatment { return group[i].treatment }, visits...) {
					want := g.decide(&group[i])
					if diff := cmp.Diff(want.Standings, got.Standings, aboutAnHour, cmpopts.EquateEmpty()); diff != "" || !sameError(got.Err, want.Err) {
						t.Fatalf("visitor %d, %+v: %v, want %v (-want +got):\n%s", i, group[i], got.Err, want.Err, diff)
					}
				}
			},
			"time passes": func(t *rapid.T) {
				by := rapid.IntRange(1, 8).Draw(t, "hours")
				b.exec(`UPDATE budget_rates SET full_at = full_at - $1 * 3600000000000::bigint`, by)
				for at := range g.hours {
					g.hours[at] = max(0, g.hours[at]-by)
				}
			},
			"purge": func(*rapid.T) {
				_, err := metered.PurgeRates(b.t.Context(), b.db, metered.ScopePosition{}, 100)
				b.must(err)
			},
			"": func(t *rapid.T) {
				for _, tenant := range tenants {
					want := make(map[string]int)
					for at, hours := range g.hours {
						if at.tenant == tenant && hours > 0 {
							want[at.scope] = hours
						}
					}
					if diff := cmp.Diff(want, b.rates(tenant)); diff != "" {
						t.Fatalf("hours until the rates are full (-want +got):\n%s", diff)
					}
				}
				spent := 0
				for _, k := range g.tokens {
					if hash := sha256.Sum256([]byte(k.plaintext.Plaintext())); k.spent {
						spent += b.count(`SELECT count(*) FROM expiring_tokens WHERE token_hash = $1 AND consumed_at IS NOT NULL`, hash[:])
					}
				}
				if n := b.count(`SELECT count(*) FROM expiring_tokens WHERE consumed_at IS NOT NULL`); n != spent {
					t.Fatalf("%d tokens are spent, want %d", n, spent)
				}
			},
		})
	})
}
