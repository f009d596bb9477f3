package metered_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
)

// waitMax bounds every wait of a test.
const waitMax = 5 * time.Minute

// bundle is the fixture of the tests of this package.
type bundle struct {
	t        testing.TB
	db       *pgxpool.Pool
	tenant   uuid.UUID
	tokens   *metered.TokenStore
	budgets  *metered.BudgetLedger
	commands *metered.Commands
}

func newBundle(t testing.TB) *bundle {
	t.Helper()
	db := pgtest.New(t)
	if err := migrations.Up(context.Background(), db, &migrations.Config{Metered: true}); err != nil {
		t.Fatal(err)
	}
	return bundleOn(t, db)
}

// bundleOn returns a bundle on a pool of a database that has the tables.
func bundleOn(t testing.TB, db *pgxpool.Pool) *bundle {
	t.Helper()
	commands, err := metered.New(db, metered.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{
		t: t, db: db, tenant: uuid.MustParse("01900000-0000-7000-8000-000000000001"),
		tokens: commands.Tokens, budgets: commands.Budgets, commands: commands,
	}
}

// on returns the bundle with its verbs on another pool.
func (b *bundle) on(db *pgxpool.Pool) *bundle { return bundleOn(b.t, db) }

func must[T any](b *bundle, do func() (T, error)) T {
	b.t.Helper()
	value, err := do()
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

func (b *bundle) must(err error) {
	b.t.Helper()
	pgtest.Must(b.t, err)
}

func (b *bundle) inTx(do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(context.Background(), b.db, do)
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	pgtest.Exec(b.t, b.db, sql, args...)
}

// count returns the number that a query returns.
func (b *bundle) count(sql string, args ...any) int {
	b.t.Helper()
	return int(pgtest.Int(b.t, b.db, sql, args...))
}

// mint makes a token for purpose "upload" and subject "session-1".
func (b *bundle) mint() metered.Token {
	b.t.Helper()
	grant := metered.Grant{Purpose: "upload", Subject: "session-1", Payload: []byte(`{"asset": 7}`), TTL: time.Hour}
	return must(b, func() ([]metered.Minted, error) { return b.tokens.Mint(context.Background(), b.tenant, grant) })[0].Token
}

// The token of a caller without one, and an invalid token.
var noToken, rubbish = metered.Token{}, metered.ParseToken("rubbish")

func redeem(token metered.Token) metered.Redemption {
	return metered.Redemption{Purpose: "upload", Subject: "session-1", Token: token}
}

// consume redeems a token in a separate transaction.
func (b *bundle) consume(r metered.Redemption) (payload string, err error) {
	err = b.inTx(func(tx pgx.Tx) error {
		got, err := b.tokens.ConsumeTx(context.Background(), tx, b.tenant, r)
		payload = string(got)
		return err
	})
	return payload, err
}

func charge(scope string, amount, limit int64, window time.Duration) metered.Charge {
	return metered.Charge{Scope: scope, Amount: amount, Limit: limit, Window: window}
}

// reserve charges a scope in a separate transaction.
func (b *bundle) reserve(c metered.Charge) metered.Budget {
	b.t.Helper()
	budget, err := b.budgets.TryReserve(context.Background(), b.tenant, c)
	if errors.Is(err, metered.ErrOverBudget) == reserved(budget) || err != nil && !errors.Is(err, metered.ErrOverBudget) {
		b.t.Fatalf("%+v: %v", budget, err)
	}
	return budget
}

// rows are the numbers of tokens redeemed, entries recorded, scopes and keys
// made, jobs inserted and events written.
type rows struct{ Spent, Entries, Scopes, Keys, Jobs, Events int }

func (b *bundle) rows() rows {
	b.t.Helper()
	return rows{
		Spent:   b.count(`SELECT count(*) FROM expiring_tokens WHERE consumed_at IS NOT NULL`),
		Entries: b.count(`SELECT count(*) FROM budget_ledger`),
		Scopes:  b.count(`SELECT count(*) FROM budget_scopes`),
		Keys:    b.count(`SELECT count(*) FROM command_keys`),
		Jobs:    b.count(`SELECT count(*) FROM river.river_job`),
		Events:  b.count(`SELECT count(*) FROM audit_log WHERE action = 'job.created'`),
	}
}

// everything are the rows of one command.
var everything = rows{Spent: 1, Entries: 1, Scopes: 1, Keys: 1, Jobs: 1, Events: 1}

// canceled is a context that has ended.
func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// isRefusal reports whether err is a refusal.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*metered.Error](err)
	return ok
}

// reserved reports whether an amount was reserved.
func reserved(b metered.Budget) bool { return b.Reservation != (metered.Reservation{}) }
