package metered

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// GroupMax is how many passes one call decides at most.
const GroupMax = 10_000

// Pass is what one member of a group asks for: room in each of its budgets and a token to be spent; all of it, or none.
type Pass struct {
	TenantID uuid.UUID
	// Reserve is at most ChargesMax charges, counted one after the other.
	Reserve []Charge
	// Spend is nil for a pass without a token.
	Spend *Redemption
}

// Verdict is what came of a pass.
type Verdict struct {
	// Err is nil if all was reserved and spent. Otherwise nothing was: one of [ErrTokenRefused], which goes before an
	// [*OverBudgetError], or an [*InvalidError].
	Err error
	// Payload is the spent token's.
	Payload json.RawMessage
	// Budgets say how the charges stand, in their order, also if Err is not nil; none for bad input.
	Budgets []Budget
}

// Gate lets groups through. It is safe for concurrent use.
type Gate struct {
	windowMax time.Duration
}

// NewGate makes a gate to the ledger's budgets, and for any tokens.
func NewGate(budgets *BudgetLedger) *Gate { return &Gate{budgets.windowMax} }

// PassTx decides a group of at most GroupMax, of any tenants, in the caller's transaction, and reserves and spends for
// those it lets through. First come, first served: the passes are decided in their order, and one that is too large for
// what is left of a budget does not stop a smaller one behind it. Each is decided by itself: one that is refused for
// whatever reason, bad input included, reserves nothing, spends nothing and costs the others nothing.
//
// It takes two round trips, whatever the size of the group. Rolled back, nothing was reserved or spent. A group is never
// half decided. The error is an [*InvalidError] for a group that is too large; any other is the database's.
//
// It is right at every isolation level. Above READ COMMITTED a lost race is a serialization failure (SQLSTATE 40001), and a
// token that was minted after the transaction's first statement is unknown to it.
func (g *Gate) PassTx(ctx context.Context, tx pgx.Tx, passes []Pass) ([]Verdict, error) {
	return pass(ctx, tx, "metered.pass", g.windowMax, passes)
}

func pass(ctx context.Context, tx pgx.Tx, verb string, windowMax time.Duration, passes []Pass) (verdicts []Verdict, err error) {
	ctx, done := telemetry.Verb(ctx, verb)
	defer func() { done("", err) }()
	if len(passes) > GroupMax {
		return nil, &InvalidError{Field: "passes", Message: fmt.Sprintf("must be at most %d", GroupMax)}
	}
	verdicts = make([]Verdict, len(passes))
	valid, place := make([]Pass, 0, len(passes)), make([]int, 0, len(passes))
	for i := range passes {
		if verdicts[i].Err = passes[i].validate(windowMax); verdicts[i].Err != nil {
			continue
		}
		valid, place = append(valid, passes[i]), append(place, i)
	}
	if len(valid) == 0 {
		return verdicts, nil
	}
	scopes, tokens := newLockedScopes(valid), &lockedTokens{}
	at, err := lockTx(ctx, tx, scopes, tokens, valid)
	if err != nil {
		return nil, fmt.Errorf("lock for %d passes: %w", len(valid), err)
	}
	now := at.UnixMicro()
	if err := scopes.rebuildTx(ctx, tx, valid, now); err != nil {
		return nil, err
	}
	for i := range valid {
		verdicts[place[i]] = decide(&valid[i], scopes, tokens, at)
	}
	b := &pgx.Batch{}
	scopes.queueWrite(b, now)
	tokens.queueWrite(b, at)
	if b.Len() == 0 {
		return verdicts, nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("let %d passes through: %w", len(valid), err)
	}
	return verdicts, nil
}

func (p *Pass) validate(windowMax time.Duration) error {
	if err := validateTenant(p.TenantID); err != nil {
		return err
	}
	if len(p.Reserve) > ChargesMax {
		return &InvalidError{Field: "reserve", Message: fmt.Sprintf("must be at most %d charges", ChargesMax)}
	}
	for i := range p.Reserve {
		if err := p.Reserve[i].validate(windowMax); err != nil {
			return err
		}
	}
	return nil
}

// decide decides one pass under the locks of all it asks for.
func decide(p *Pass, scopes *lockedScopes, tokens *lockedTokens, at time.Time) (v Verdict) {
	var (
		token   *lockedToken
		refused error
	)
	if p.Spend != nil {
		token, refused = tokens.judge(p.TenantID, p.Spend, at)
	}
	v.Budgets, v.Err = scopes.charge(p, refused == nil, at.UnixMicro())
	if refused != nil {
		v.Err = refused
	}
	if v.Err == nil && token != nil {
		tokens.spend(token)
		v.Payload = token.Payload
	}
	return v
}
