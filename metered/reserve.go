package metered

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// TryReserve is [BudgetLedger.TryReserveTx] in a transaction of its own.
func (l *BudgetLedger) TryReserve(ctx context.Context, tenantID uuid.UUID, charge Charge) (budget Budget, err error) {
	err = pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error {
		budget, err = l.TryReserveTx(ctx, tx, tenantID, charge)
		return err
	})
	return budget, err
}

// TryReserveTx reserves the amount in the caller's transaction if the sum over the window stays within the limit; a
// charge that does not fit is Reserved: false, no error, and changes nothing. It waits for other transactions that
// reserve in the scope. Rolled back, nothing was reserved. The error for bad input is an [*InvalidError].
func (l *BudgetLedger) TryReserveTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, charge Charge) (Budget, error) {
	verdicts, err := l.TryReserveManyTx(ctx, tx, tenantID, []Charge{charge})
	if err != nil {
		return Budget{}, err
	}
	if invalid := (*InvalidError)(nil); errors.As(verdicts[0].Err, &invalid) {
		return Budget{}, invalid
	}
	return verdicts[0].Budgets[0], nil
}

// TryReserveManyTx reserves for each charge by itself, at most GroupMax, in their order: two round trips in all. The
// verdicts stand in the order of the charges, each with its one budget, and bad input refuses its own charge only.
// [Gate.PassTx] is for charges that belong together.
func (l *BudgetLedger) TryReserveManyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, charges []Charge) ([]Verdict, error) {
	passes := make([]Pass, len(charges))
	for i := range charges {
		passes[i] = Pass{TenantID: tenantID, Reserve: charges[i : i+1]}
	}
	return pass(ctx, tx, "metered.reserve", l.windowMax, passes)
}
