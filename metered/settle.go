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

// Release is [BudgetLedger.ReleaseTx] in a transaction of its own.
func (l *BudgetLedger) Release(ctx context.Context, tenantID uuid.UUID, r Reservation) error {
	_, err := l.Settle(ctx, tenantID, r, 0)
	return err
}

// ReleaseTx gives back all of a reservation: it settles it at 0. It needs READ
// COMMITTED, as SettleTx does.
func (l *BudgetLedger) ReleaseTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, r Reservation) error {
	_, err := l.SettleTx(ctx, tx, tenantID, r, 0)
	return err
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
// end, 0 to AmountMax, and returns the difference to what was reserved. It
// succeeds once. The ledger gets a row with the difference, which counts from
// the moment of the reservation. What was reserved too much is free again at
// once. What was reserved too little counts even above a limit, because it is a
// fact.
//
// Refusals: [ErrUnknownReservation], [ErrSettled], an [*InvalidError]. It waits
// for other transactions that reserve in the scope.
//
// It needs READ COMMITTED and returns [ErrIsolation] at a stricter level, where
// a reservation that was made after the transaction's first statement would be
// unknown, and its settlement lost.
func (l *BudgetLedger) SettleTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, r Reservation, actual int64) (difference int64, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.settle")
	defer func() { done(outcomeOf(err)) }()
	if err := validateTenant(tenantID); err != nil {
		return 0, err
	}
	if actual < 0 || actual > AmountMax {
		return 0, &InvalidError{Field: "actual", Message: fmt.Sprintf("must be between 0 and %d", AmountMax)}
	}
	if validateText("scope", r.Scope, TextMax) != nil {
		return 0, fmt.Errorf("settle %s: %w", r.ReservedAt, ErrUnknownReservation)
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
		return 0, fmt.Errorf("settle %s of %s: %w", r.Scope, r.ReservedAt, err)
	}
	s := scopes.found[r.Scope]
	switch {
	case s == nil || !known:
		return 0, fmt.Errorf("settle %s of %s: %w", r.Scope, r.ReservedAt, ErrUnknownReservation)
	case isSettled:
		return 0, fmt.Errorf("settle %s of %s: %w", r.Scope, r.ReservedAt, ErrSettled)
	}
	s.adjustClock(now.UnixMicro())
	difference = actual - reserved
	if !s.add(r.ReservedAt.UnixMicro(), difference) {
		return 0, &InvalidError{Field: "actual", Message: "is more than the scope can count"}
	}
	reservedAt := moment(r.ReservedAt.UnixMicro())
	s.lastAt, s.pending = s.next(now.UnixMicro()), 1
	scopes.entries = []entry{{scope: s, at: s.lastAt, amount: difference, reservedAt: &reservedAt}}
	b = &pgx.Batch{}
	scopes.queueWrite(b, now.UnixMicro())
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return 0, fmt.Errorf("settle %s of %s: %w", r.Scope, r.ReservedAt, err)
	}
	return difference, nil
}
