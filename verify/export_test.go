package verify

import "slices"

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
