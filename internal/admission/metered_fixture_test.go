package admission_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/ratelimit"
)

// The token of a caller without one, and a malformed token.
var noToken, malformedToken = metered.Token{}, metered.ParseToken("rubbish")

// guardedFixture is a fixture with four variants: "shoe" requires admission tokens,
// "sock" is open, "song" is digital, and "film" is digital and requires tokens.
type guardedFixture struct {
	*testkit.Fixture
	t      *testing.T
	tokens *metered.TokenStore
}

func newGuarded(t *testing.T) *guardedFixture {
	t.Helper()
	b := newNormal(t)
	pgtest.Must(t, migrations.Up(t.Context(), b.DB, &migrations.Config{Metered: true}))
	b.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, tracked, admission)
		VALUES ($1, 'shoe', 100, true, 'token'), ($1, 'sock', 100, true, 'open'), ($1, 'song', 0, false, 'open'), ($1, 'film', 0, false, 'token')`, b.Tenant)
	commands, err := metered.New(b.DB, metered.Config{})
	pgtest.Must(t, err)
	return &guardedFixture{b, t, commands.Tokens}
}

// mint makes a token for the subject ann and a variant; "" means all variants.
func (b *guardedFixture) mint(variant string) metered.Token {
	b.t.Helper()
	return b.mintMany(variant, 1)[0]
}

func (b *guardedFixture) mintMany(variant string, n int) []metered.Token {
	b.t.Helper()
	grants, tokens := make([]metered.Grant, n), make([]metered.Token, n)
	for i := range grants {
		grants[i] = metered.Grant{Purpose: admission.TokenPurpose(variant), Subject: "ann", TTL: time.Hour}
	}
	minted, err := b.tokens.Mint(b.t.Context(), b.Tenant, grants...)
	pgtest.Must(b.t, err)
	for i := range minted {
		tokens[i] = minted[i].Token
	}
	return tokens
}

// credentials returns ann's credentials: her token, and for each of the scopes
// a rate of 24 per day, of which the call uses one.
func credentials(token metered.Token, scopes ...string) admission.Credentials {
	p := admission.Credentials{Token: token, Subject: "ann"}
	for _, scope := range scopes {
		p.Rates = append(p.Rates, ratelimit.Rate{Scope: scope, Amount: 1, Limit: 24, Window: 24 * time.Hour})
	}
	return p
}

// effects are the changes of an admission: rows of requests, redeemed tokens,
// and the units counted in each rate.
type effects struct {
	Requests, Spent int64
	Rates           map[string]int
}

func (b *guardedFixture) want(what string, want effects) {
	b.t.Helper()
	if want.Rates == nil {
		want.Rates = map[string]int{}
	}
	got := effects{
		Requests: b.Int(`SELECT count(*) FROM reservation_requests`),
		Spent:    b.Int(`SELECT count(*) FROM expiring_tokens WHERE consumed_at IS NOT NULL`),
		Rates:    make(map[string]int),
	}
	rows, err := b.DB.Query(b.t.Context(), `SELECT scope, full_at / 1e9 - extract(epoch FROM clock_timestamp()) FROM budget_rates WHERE tenant_id = $1`, b.Tenant)
	pgtest.Must(b.t, err)
	var scope string
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&scope, &seconds}, func() error {
		if hours := int(math.Ceil(seconds/3600 - 1e-6)); hours > 0 {
			got.Rates[scope] = hours
		}
		return nil
	})
	pgtest.Must(b.t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("%s: rows (-want +got):\n%s", what, diff)
	}
}

// spend makes a rate full again after the given number of hours.
func (b *guardedFixture) spend(scope string, hours int) {
	b.t.Helper()
	b.Exec(`INSERT INTO budget_rates (tenant_id, scope, full_at)
		VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 + $3 * 3600000000000::bigint)
		ON CONFLICT (tenant_id, scope) DO UPDATE SET full_at = excluded.full_at`, b.Tenant, scope, hours)
}

// submit submits one request of the fixture's tenant.
func (b *guardedFixture) submit(in *admission.Intake, s requestrows.Submission, p admission.Credentials) answer {
	b.t.Helper()
	s.TenantID = b.Tenant
	v, states, err := in.SubmitMetered(b.t.Context(), s, p)
	return answer{request: v.Request, view: v, states: states, err: err}
}

// remaining returns the remaining units of each rate of an answer.
func (a answer) remaining() (n []int64) {
	for _, s := range a.states {
		n = append(n, s.Remaining)
	}
	return n
}
