package ratelimit_test

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

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// model is the batch limiter in its simplest form. It keeps tokens and rates in
// memory, and decides one item after the other. Rates are counted in whole
// hours, so that nothing is refilled while a test runs.
type model struct {
	tokens []*modelToken
	hours  map[modelScope]int // hours until it is full again
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

// modelItem is an item with the values from which it was made.
type modelItem struct {
	item
	tenant uuid.UUID
	rates  []ratelimit.Rate
	spend  *metered.Redemption
	mode   itemMode
}

func hoursOf(r ratelimit.Rate) (cost, window, unit int) {
	window = int(r.Window / time.Hour)
	unit = window / int(r.Limit)
	return unit * int(r.Amount), window, unit
}

// shorten bounds the time until each rate is full by the longest window for it
// in the batch.
func (g *model) shorten(group []modelItem) {
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

// decide returns the expected result of the item, and counts it if it is not
// refused.
func (g *model) decide(v *modelItem) (want ratelimit.Result) {
	if v.mode == skipItem {
		return want
	}
	token, refused := g.find(v)
	before := make(map[modelScope]int)
	var over *ratelimit.ExceededError
	for _, r := range v.rates {
		at := modelScope{v.tenant, r.Scope}
		if _, ok := before[at]; !ok {
			before[at] = g.hours[at]
		}
		if cost, window, _ := hoursOf(r); over == nil && (r.Amount > r.Limit || g.hours[at]+cost > window) {
			over = &ratelimit.ExceededError{Rate: r}
		} else if over == nil {
			g.hours[at] += cost
		}
	}
	counted := refused == nil && over == nil
	if !counted {
		maps.Copy(g.hours, before)
	}
	for _, r := range v.rates {
		level := g.hours[modelScope{v.tenant, r.Scope}]
		cost, window, unit := hoursOf(r)
		s := ratelimit.State{Remaining: int64(max(0, (window-level)/unit)), Reset: time.Duration(level) * time.Hour}
		switch {
		case counted:
		case r.Amount > r.Limit:
			s.Wait = -1
		default:
			s.Wait = time.Duration(max(0, level+cost-window)) * time.Hour
		}
		want.States = append(want.States, s)
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

// find returns the token that the item redeems, or the reason why it cannot. It
// returns nil for an item that redeems none.
func (g *model) find(v *modelItem) (*modelToken, error) {
	if v.mode != countAndRedeem {
		return nil, nil
	}
	if v.spend == nil || !tokens.WellFormed(v.spend.Token.Plaintext()) {
		return nil, errMalformed
	}
	for _, k := range g.tokens {
		if k.tenant != v.tenant || k.plaintext.Plaintext() != v.spend.Token.Plaintext() {
			continue
		}
		switch {
		case k.Purpose != v.spend.Purpose && k.Purpose != v.spend.OrPurpose:
			return nil, errPurpose
		case k.Subject != v.spend.Subject:
			return nil, errSubject
		case k.spent:
			return nil, errUsed
		case k.isExpired:
			return nil, errExpired
		}
		return k, nil
	}
	return nil, errUnknown
}

// drawItem draws an item with any rates, token and mode.
func (g *model) drawItem(t *rapid.T, b *bundle, tenants []uuid.UUID) modelItem {
	v := modelItem{tenant: rapid.SampledFrom(tenants).Draw(t, "tenant"), mode: itemMode(rapid.IntRange(0, 2).Draw(t, "mode"))}
	for range rapid.IntRange(0, 3).Draw(t, "rates") {
		window := rapid.SampledFrom([]int64{6, 12, 24}).Draw(t, "window")
		limit := rapid.SampledFrom([]int64{1, 2, 3, 6}).Draw(t, "limit")
		v.rates = append(v.rates, ratelimit.Rate{
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
	v.item = b.itemOf(v.tenant, v.spend, v.rates...)
	return v
}

// mint makes some tokens of a tenant, of which some have expired.
func (g *model) mint(t *rapid.T, b *bundle, tenants []uuid.UUID) {
	for range rapid.IntRange(1, 4).Draw(t, "minted") {
		k := &modelToken{
			tenant: rapid.SampledFrom(tenants).Draw(t, "tenant"), isExpired: rapid.IntRange(0, 4).Draw(t, "expired") == 0,
			Grant: metered.Grant{Purpose: rapid.SampledFrom([]string{"p", "q", "any"}).Draw(t, "purpose"), Subject: "s", TTL: time.Hour},
		}
		minted, err := b.tokens.Mint(b.t.Context(), k.tenant, k.Grant)
		b.must(err)
		k.plaintext = minted[0].Token
		if k.isExpired {
			hash := sha256.Sum256([]byte(k.plaintext.Plaintext()))
			b.exec(`UPDATE expiring_tokens SET created_at = created_at - interval '2 h', expires_at = expires_at - interval '2 h' WHERE token_hash = $1`, hash[:])
		}
		g.tokens = append(g.tokens, k)
	}
}

// sameError compares the errors of results. For a rate it compares the scope
// and the amount.
func sameError(got, want error) bool {
	overGot, _ := errors.AsType[*ratelimit.ExceededError](got)
	overWant, _ := errors.AsType[*ratelimit.ExceededError](want)
	if overGot == nil || overWant == nil {
		return errors.Is(got, want)
	}
	return overGot.Rate == overWant.Rate
}

// Random batches, tokens and passing time match the model.
func TestBatchModel(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	tenants := []uuid.UUID{b.tenant, uuid.New()}
	rapid.Check(t, pgtest.Fewer(func(t *rapid.T) {
		b.exec(`TRUNCATE expiring_tokens, budget_rates`)
		g := &model{hours: make(map[modelScope]int)}
		t.Repeat(map[string]func(*rapid.T){
			"mint": func(t *rapid.T) { g.mint(t, b, tenants) },
			"group": func(t *rapid.T) {
				group := make([]modelItem, rapid.IntRange(1, 12).Draw(t, "members"))
				items := make([]item, len(group))
				for i := range group {
					group[i] = g.drawItem(t, b, tenants)
					items[i] = group[i].item
				}
				g.shorten(group)
				for i, got := range b.decide(func(i int) itemMode { return group[i].mode }, items...) {
					want := g.decide(&group[i])
					if diff := cmp.Diff(want.States, got.States, aboutAnHour, cmpopts.EquateEmpty()); diff != "" || !sameError(got.Err, want.Err) {
						t.Fatalf("item %d, %+v: %v, want %v (-want +got):\n%s", i, group[i], got.Err, want.Err, diff)
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
				_, _, _, err := ratelimit.Purge(b.t.Context(), b.db, ratelimit.RateRef{}, 100)
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
					t.Fatalf("%d tokens are redeemed, want %d", n, spent)
				}
			},
		})
	}))
}
