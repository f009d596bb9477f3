package verify

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Bounds of a check's count and of its sample.
const (
	BrokenMax = brokenMax
	SampleMax = sampleMax
)

// RunTx makes every check on one connection, in the caller's transaction.
func RunTx(ctx context.Context, tx pgx.Tx, c Config) (Report, error) {
	r, err := c.begin(ctx, tx)
	if err != nil {
		return Report{}, err
	}
	if err := work(ctx, tx, r.targets, r.table); err != nil {
		return Report{}, err
	}
	return r.finish(), nil
}

var (
	allTargetChecks = slices.Concat(requestChecks, reservationChecks, recordChecks, laneChecks, []targetCheck{lifetimeCheck, queueAgeCheck}, targetNotes)
	allTableChecks  = slices.Concat(stockChecks, requestTableChecks, keyChecks, auditChecks, laneTableChecks, unitChecks, checkoutChecks, meteredTableChecks,
		clockNotes, unitNotes)
)

// TargetStatement is the statement of a run's pass over the targets.
func TargetStatement() string { return targetStatement(allTargetChecks) }

// Names are those of all checks and notes.
func Names() (names []string) {
	for _, c := range allTargetChecks {
		names = append(names, c.name)
	}
	for _, c := range allTableChecks {
		names = append(names, c.name)
	}
	return names
}
