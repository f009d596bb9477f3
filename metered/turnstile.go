package metered

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// Turnstile lets one group through in the caller's transaction: it counts visits in rates and spends their tokens. It is
// for groups that are nearly all let in, and for callers who learn only in the same round trip which visits count.
//
// It takes first and gives back afterwards. Queue adds to the caller's batch what takes all that the group asks for: each
// token that is good, and each rate's whole amount, room or not. PassTx then decides the visits in their order, under the
// locks, and where one is refused or ignored it gives back what was taken for it: two more round trips at most, which a
// group that is let in as a whole does not make.
//
// First come, first served within a group; what one visit is refused for costs the others no room and no token. Rows are
// locked, tokens before rates, each in their order, until the transaction ends; the tokens' is that of their looking up, by
// index, one after the other, so a plan that joins in another way may end two groups with the same tokens in a deadlock, which
// may be retried. Rolled back, nothing was counted or spent.
type Turnstile struct {
	visits []Visit
	tokens spending
	rates  counting
}

// NewTurnstile makes one for a group of at most GroupMax visits.
func NewTurnstile(visits []Visit) (*Turnstile, error) {
	if len(visits) > GroupMax {
		return nil, &InvalidError{Field: "visits", Message: fmt.Sprintf("must be at most %d", GroupMax)}
	}
	return &Turnstile{visits: visits, tokens: newSpending(visits), rates: newCounting(visits)}, nil
}

// Queue adds to the batch what takes all that the group asks for. It comes before PassTx, in the same transaction.
func (t *Turnstile) Queue(b *pgx.Batch) {
	t.tokens.queueTake(b)
	t.rates.queueTake(b)
}

// PassTx decides the visits as treat says, which is asked for each by its place in the group. An error is the
// database's, and the transaction must be rolled back.
//
// It is right at every isolation level. Above READ COMMITTED a lost race is a serialization failure (SQLSTATE 40001), which
// the batch with Queue's statements returns, and a token that was minted after the transaction's first statement is unknown.
func (t *Turnstile) PassTx(ctx context.Context, tx pgx.Tx, treat func(place int) Treatment) (_ []Entry, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.turnstile")
	defer func() { done("", err) }()
	treatments := make([]Treatment, len(t.visits))
	for i := range treatments {
		treatments[i] = treat(i)
	}
	b := &pgx.Batch{}
	var at time.Time
	t.tokens.queueLook(b, treatments, &at)
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return nil, fmt.Errorf("look why %d visits were not let in: %w", len(t.visits), err)
		}
	}
	entries := make([]Entry, len(t.visits))
	for i := range t.visits {
		if treatments[i] != Ignored {
			entries[i] = t.decide(i, treatments[i] == Guarded, at)
		}
	}
	b = &pgx.Batch{}
	t.tokens.queueSettle(b, at)
	t.rates.queueSettle(b)
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return nil, fmt.Errorf("give back what was taken for %d visits: %w", len(t.visits), err)
		}
	}
	return entries, nil
}

// decide lets one visit in, or says why not.
func (t *Turnstile) decide(i int, guarded bool, at time.Time) Entry {
	var refused error
	if guarded {
		refused = t.tokens.judge(i, at)
	}
	standings, over := t.rates.count(i, t.visits[i].rates, refused == nil)
	switch {
	case refused != nil:
		return Entry{refused, standings}
	case over != nil:
		return Entry{over, standings}
	}
	if guarded {
		t.tokens.spend(i)
	}
	return Entry{nil, standings}
}

// rateKey names a rate.
type rateKey struct {
	tenant uuid.UUID
	scope  string
}
