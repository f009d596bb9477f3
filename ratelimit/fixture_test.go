package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/ratelimit"
)

// waitMax bounds every wait of a test.
const waitMax = 5 * time.Minute

// The reasons for which a token is refused.
const (
	errMalformed = tokens.ErrMalformed
	errUnknown   = tokens.ErrUnknown
	errPurpose   = tokens.ErrPurpose
	errSubject   = tokens.ErrSubject
	errUsed      = tokens.ErrUsed
	errExpired   = tokens.ErrExpired
)

// itemMode is what a test does with an item of a batch.
type itemMode int

const (
	skipItem       itemMode = iota // counts it nowhere
	countItem                      // counts it in its rates
	countAndRedeem                 // also redeems its token, both or neither
)

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
	if err := migrations.Up(context.Background(), db, &migrations.Config{Metered: true}); err != nil {
		t.Fatal(err)
	}
	commands, err := metered.New(db, metered.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{t, db, uuid.MustParse("01900000-0000-7000-8000-000000000001"), commands.Tokens}
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

func (b *bundle) mintMany(n int) (made []metered.Token) {
	b.t.Helper()
	grants := make([]metered.Grant, n)
	for i := range grants {
		grants[i] = metered.Grant{Purpose: "upload", Subject: "session-1", TTL: time.Hour}
	}
	minted, err := b.tokens.Mint(b.t.Context(), b.tenant, grants...)
	b.must(err)
	for _, m := range minted {
		made = append(made, m.Token)
	}
	return made
}

func redeem(token metered.Token) metered.Redemption {
	return metered.Redemption{Purpose: "upload", Subject: "session-1", Token: token}
}

// item is an item of a batch and the token that it presents.
type item struct {
	ratelimit.Item
	token tokens.Presented
}

// item returns an item of the bundle's tenant.
func (b *bundle) item(token metered.Token, rates ...ratelimit.Rate) item {
	b.t.Helper()
	if token.Plaintext() == "" {
		return b.itemOf(b.tenant, nil, rates...)
	}
	return b.itemOf(b.tenant, new(redeem(token)), rates...)
}

func (b *bundle) itemOf(tenant uuid.UUID, spend *metered.Redemption, rates ...ratelimit.Rate) item {
	b.t.Helper()
	limited, err := ratelimit.NewItem(tenant, rates)
	b.must(err)
	var token tokens.Presented
	if spend != nil {
		token, err = tokens.Present(spend.Token.Plaintext(), tokens.Terms{
			TenantID: tenant, Purpose: spend.Purpose, OrPurpose: spend.OrPurpose, Subject: spend.Subject,
		})
		b.must(err)
	}
	return item{limited, token}
}

// newBatch makes a batch of the items and the redemptions of their tokens.
func newBatch(items []item) (*ratelimit.Batch, *tokens.Redemptions, error) {
	limited, presented := make([]ratelimit.Item, len(items)), make([]tokens.Presented, len(items))
	for i := range items {
		limited[i], presented[i] = items[i].Item, items[i].token
	}
	batch, err := ratelimit.NewBatch(limited)
	return batch, tokens.NewRedemptions(presented), err
}

// take runs the statements of a batch and of its redemptions.
func (b *bundle) take(tx pgx.Tx, batch *ratelimit.Batch, redemptions *tokens.Redemptions) error {
	statements := &pgx.Batch{}
	redemptions.Queue(statements)
	batch.Queue(statements)
	return tx.SendBatch(b.t.Context(), statements).Close()
}

// decideTx decides a batch in the caller's transaction.
func (b *bundle) decideTx(tx pgx.Tx, mode func(int) itemMode, items ...item) ([]ratelimit.Result, error) {
	batch, redemptions, err := newBatch(items)
	if err != nil {
		return nil, err
	}
	if err := b.take(tx, batch, redemptions); err != nil {
		return nil, err
	}
	return b.decideTaken(tx, mode, batch, redemptions)
}

// decideTaken decides a batch whose statements have run, each item in the mode
// of its index.
func (b *bundle) decideTaken(tx pgx.Tx, mode func(int) itemMode, batch *ratelimit.Batch, redemptions *tokens.Redemptions) ([]ratelimit.Result, error) {
	if err := redemptions.LookUpTx(b.t.Context(), tx, func(i int) bool { return mode(i) == countAndRedeem }); err != nil {
		return nil, err
	}
	return batch.DecideTx(b.t.Context(), tx, &ratelimit.DecideOpts{
		Skip: func(i int) bool { return mode(i) == skipItem },
		Refuse: func(i int, fits bool) error {
			if mode(i) != countAndRedeem {
				return nil
			}
			return redemptions.Redeem(i, fits)
		},
		Queue: redemptions.QueueSettle,
	})
}

// decide decides a batch in a separate transaction.
func (b *bundle) decide(mode func(int) itemMode, items ...item) (results []ratelimit.Result) {
	b.t.Helper()
	b.must(b.inTx(func(tx pgx.Tx) (err error) {
		results, err = b.decideTx(tx, mode, items...)
		return err
	}))
	return results
}

// isExceeded reports whether a rate had too little left.
func isExceeded(err error) bool {
	_, ok := errors.AsType[*ratelimit.ExceededError](err)
	return ok
}

func redeemAll(int) itemMode { return countAndRedeem }

func countAll(int) itemMode { return countItem }
