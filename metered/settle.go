package metered

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Settle is [BudgetLedger.SettleTx] in a transaction of its own.
func (l *BudgetLedger) Settle(ctx context.Context, tenantID uuid.UUID, r Reservation, actual int64) (difference int64, err error) {
	return inTx(ctx, l.db, func(tx pgx.Tx) (int64, error) { return l.SettleTx(ctx, tx, tenantID, r, actual) })
}

const reservationSQL = `
SELECT l.amount, EXISTS (
    SELECT
    FROM budget_ledger s
    WHERE s.tenant_id = l.tenant_id AND s.scope = l.scope AND s.reserved_at = l.recorded_at
) AS settled
FROM budget_ledger l
WHERE l.tenant_id = $1 AND l.scope = $2 AND l.recorded_at = $3 AND l.reserved_at IS NULL`

// SettleTx records in the caller's transaction what a reservation cost in the
// end, 0 to 10¹⁵, and returns the difference to what was reserved. An actual
// cost of 0 releases all of it. It succeeds once. The ledger gets a row with
// the difference, which counts from the moment of the reservation. What was
// reserved too much is free again at once. What was reserved too little counts
// even above a limit, because it is a fact.
//
// Refusals: [ErrUnknown], [ErrSettled], [ErrInvalid]. It waits for other
// transactions that reserve in the scope.
//
// It needs READ COMMITTED and fails at a stricter level, where a reservation
// that was made after the transaction's first statement would be unknown, and
// its settlement lost. Postgres aborts the transaction, so that is not a
// refusal.
func (l *BudgetLedger) SettleTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, r Reservation, actual int64) (difference int64, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.settle")
	defer func() { done(outcomeOf(err)) }()
	if err := validateTenant(tenantID); err != nil {
		return 0, err
	}
	if actual < 0 || actual > amountMax {
		return 0, invalidField("actual", "must be between 0 and %d", amountMax)
	}
	difference, err = settleTx(ctx, tx, tenantID, r, actual)
	if err != nil {
		return 0, fmt.Errorf("settle %s of %s: %w", r.Scope, r.ReservedAt, err)
	}
	return difference, nil
}

func settleTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, r Reservation, actual int64) (difference int64, err error) {
	if validateText("scope", r.Scope, textMax) != nil {
		return 0, errUnknownReservation
	}
	scopes := &lockedScopes{tenant: tenantID, names: []string{r.Scope}, found: make(map[string]*lockedScope)}
	var (
		now              time.Time
		reserved         int64
		known, isSettled bool
	)
	b := &pgx.Batch{}
	pg.QueueIsolation(b)
	scopes.queueLock(b, true)
	b.Queue(reservationSQL, tenantID, r.Scope, r.ReservedAt).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&reserved, &isSettled}, func() error {
			known = true
			return nil
		})
		return err
	})
	pg.QueueClock(b, &now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return 0, err
	}
	s := scopes.found[r.Scope]
	switch {
	case s == nil || !known:
		return 0, errUnknownReservation
	case isSettled:
		return 0, &Error{Kind: ErrSettled}
	}
	s.adjustClock(now.UnixMicro())
	difference = actual - reserved
	if !s.add(r.ReservedAt.UnixMicro(), difference) {
		return 0, invalidField("actual", "is more than the scope can count")
	}
	reservedAt := moment(r.ReservedAt.UnixMicro())
	s.lastAt, s.pending = s.next(now.UnixMicro()), 1
	scopes.entries = []entry{{scope: s, at: s.lastAt, amount: difference, reservedAt: &reservedAt}}
	b = &pgx.Batch{}
	scopes.queueWrite(b, now.UnixMicro())
	return difference, tx.SendBatch(ctx, b).Close()
}
