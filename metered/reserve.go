package metered

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// TryReserve is [BudgetLedger.TryReserveTx] in a transaction of its own.
func (l *BudgetLedger) TryReserve(ctx context.Context, tenantID uuid.UUID, charge Charge) (budget Budget, err error) {
	err = inTx(ctx, l.db, func(tx pgx.Tx) error {
		budget, err = l.TryReserveTx(ctx, tx, tenantID, charge)
		return err
	})
	return budget, err
}

// TryReserveTx reserves the amount in the caller's transaction if the sum over the window stays within the limit. It waits
// for other transactions that reserve in the scope. Rolled back, nothing was reserved.
//
// Refusals: an [*OverBudgetError], with which the budget says how it stands all the same, and an [*InvalidError].
//
// It is right at every isolation level; above READ COMMITTED a lost race is a serialization failure (SQLSTATE 40001).
func (l *BudgetLedger) TryReserveTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, charge Charge) (Budget, error) {
	verdicts, err := l.TryReserveManyTx(ctx, tx, tenantID, []Charge{charge})
	if err != nil {
		return Budget{}, err
	}
	if len(verdicts[0].Budgets) == 0 { // bad input
		return Budget{}, verdicts[0].Err
	}
	return verdicts[0].Budgets[0], verdicts[0].Err
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
