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

// patience bounds every wait of a test.
const patience = time.Minute

// bundle is what the tests of this package need.
type bundle struct {
	t        testing.TB
	db       *pgxpool.Pool
	tenant   uuid.UUID
	tokens   *metered.TokenStore
	budgets  *metered.BudgetLedger
	jobs     *metered.JobStore
	gate     *metered.Gate
	commands *metered.Commands
}

func newBundle(t testing.TB) *bundle {
	t.Helper()
	db := pgtest.New(t)
	if err := migrations.UpMetered(context.Background(), db); err != nil {
		t.Fatal(err)
	}
	return bundleOn(t, db)
}

// bundleOn is a bundle on a pool of a database that has the tables.
func bundleOn(t testing.TB, db *pgxpool.Pool) *bundle {
	t.Helper()
	budgets, err := metered.NewBudgetLedger(db, metered.BudgetConfig{})
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := metered.NewJobStore(db)
	if err != nil {
		t.Fatal(err)
	}
	gate := metered.NewGate(budgets)
	return &bundle{
		t: t, db: db, tenant: uuid.MustParse("01900000-0000-7000-8000-000000000001"),
		tokens: metered.NewTokenStore(db), budgets: budgets, jobs: jobs, gate: gate, commands: metered.NewCommands(db, gate, jobs),
	}
}

// on is the bundle with its verbs on another pool.
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
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) inTx(do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(context.Background(), b.db, do)
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// count is the number that a query gives.
func (b *bundle) count(sql string, args ...any) (n int) {
	b.t.Helper()
	if err := b.db.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// mint makes a token for purpose "upload" and subject "session-1".
func (b *bundle) mint() metered.Token {
	b.t.Helper()
	grant := metered.Grant{Purpose: "upload", Subject: "session-1", Payload: []byte(`{"asset": 7}`), TTL: time.Hour}
	return must(b, func() (metered.Minted, error) { return b.tokens.Mint(context.Background(), b.tenant, grant) }).Token
}

// What is presented by who has no token, and by who takes something else for one.
var noToken, rubbish = metered.Token{}, metered.ParseToken("rubbish")

func redeem(token metered.Token) metered.Redemption {
	return metered.Redemption{Purpose: "upload", Subject: "session-1", Token: token}
}

// consume spends a token in a transaction of its own.
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

// reserve charges a scope in a transaction of its own.
func (b *bundle) reserve(c metered.Charge) metered.Budget {
	b.t.Helper()
	budget, err := b.budgets.TryReserve(context.Background(), b.tenant, c)
	if errors.Is(err, metered.ErrOverBudget) == budget.Reserved || err != nil && !errors.Is(err, metered.ErrOverBudget) {
		b.t.Fatalf("%+v: %v", budget, err)
	}
	return budget
}

// rows says how many tokens are spent, entries recorded, keys claimed, jobs inserted and events written.
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

// everything is what one command leaves.
var everything = rows{Spent: 1, Entries: 1, Scopes: 1, Keys: 1, Jobs: 1, Events: 1}

// awaitWaiting returns once that many backends of the test's database wait for a lock.
func (b *bundle) awaitWaiting(backends int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for n := 0; n < backends; {
		err := b.db.QueryRow(ctx, `
			SELECT count(*)
			FROM pg_locks AS l
			JOIN pg_stat_activity AS a USING (pid)
			WHERE NOT l.granted AND a.datname = current_database()`).Scan(&n)
		if err != nil {
			b.t.Fatalf("wait for %d backends to wait for a lock: %v", backends, err)
		}
	}
}

// canceled is a context that has ended.
func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}
