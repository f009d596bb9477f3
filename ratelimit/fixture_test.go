package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/ratelimit"
)

// waitMax bounds every wait of a test.
const waitMax = time.Minute

// bundle is the fixture of the tests of this package: a database with the
// tables, a tenant, and tokens of package metered, which items redeem.
type bundle struct {
	t      testing.TB
	db     *pgxpool.Pool
	tenant uuid.UUID
	tokens *metered.TokenStore
}

func newBundle(t testing.TB) *bundle {
	t.Helper()
	db := pgtest.New(t)
	if err := migrations.UpMetered(context.Background(), db); err != nil {
		t.Fatal(err)
	}
	return &bundle{t, db, uuid.MustParse("01900000-0000-7000-8000-000000000001"), metered.NewTokenStore(db)}
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

// The token of a caller without one, and an invalid token.
var noToken, rubbish = metered.Token{}, metered.ParseToken("rubbish")

// mint makes a token for purpose "upload" and subject "session-1".
func (b *bundle) mint() metered.Token {
	b.t.Helper()
	return b.mintMany(1)[0]
}

func (b *bundle) mintMany(n int) (tokens []metered.Token) {
	b.t.Helper()
	grants := make([]metered.Grant, n)
	for i := range grants {
		grants[i] = metered.Grant{Purpose: "upload", Subject: "session-1", TTL: time.Hour}
	}
	minted, err := b.tokens.MintMany(b.t.Context(), b.tenant, grants)
	b.must(err)
	for _, m := range minted {
		tokens = append(tokens, m.Token)
	}
	return tokens
}

func redeem(token metered.Token) metered.Redemption {
	return metered.Redemption{Purpose: "upload", Subject: "session-1", Token: token}
}

// item is an item of a batch and the token that it presents.
type item struct {
	ratelimit.Item
	token metered.Presented
}

// item returns an item of the bundle's tenant.
func (b *bundle) item(token metered.Token, rates ...ratelimit.Rate) item {
	b.t.Helper()
	if token.IsZero() {
		return b.itemOf(b.tenant, nil, rates...)
	}
	return b.itemOf(b.tenant, new(redeem(token)), rates...)
}

func (b *bundle) itemOf(tenant uuid.UUID, spend *metered.Redemption, rates ...ratelimit.Rate) item {
	b.t.Helper()
	limited, err := ratelimit.NewItem(tenant, rates)
	b.must(err)
	token, err := metered.Present(tenant, spend)
	b.must(err)
	return item{limited, token}
}

// newBatch makes a batch of the items and the redemptions of their tokens.
func newBatch(items []item) (*ratelimit.Batch, *metered.Redemptions, error) {
	limited, tokens := make([]ratelimit.Item, len(items)), make([]metered.Presented, len(items))
	for i := range items {
		limited[i], tokens[i] = items[i].Item, items[i].token
	}
	batch, err := ratelimit.NewBatch(limited)
	return batch, metered.NewRedemptions(tokens), err
}

// take runs the statements of a batch and of its redemptions.
func (b *bundle) take(tx pgx.Tx, batch *ratelimit.Batch, tokens *metered.Redemptions) error {
	statements := &pgx.Batch{}
	tokens.Queue(statements)
	batch.Queue(statements)
	return tx.SendBatch(b.t.Context(), statements).Close()
}

// decideTx decides a batch in the caller's transaction.
func (b *bundle) decideTx(tx pgx.Tx, mode func(int) ratelimit.Mode, items ...item) ([]ratelimit.Result, error) {
	batch, tokens, err := newBatch(items)
	if err != nil {
		return nil, err
	}
	if err := b.take(tx, batch, tokens); err != nil {
		return nil, err
	}
	return batch.DecideTx(b.t.Context(), tx, mode, tokens)
}

// decide decides a batch in a separate transaction.
func (b *bundle) decide(mode func(int) ratelimit.Mode, items ...item) (results []ratelimit.Result) {
	b.t.Helper()
	b.must(b.inTx(func(tx pgx.Tx) (err error) {
		results, err = b.decideTx(tx, mode, items...)
		return err
	}))
	return results
}

func redeemAll(int) ratelimit.Mode { return ratelimit.CountAndRedeem }

func countAll(int) ratelimit.Mode { return ratelimit.Count }
