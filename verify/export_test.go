package verify

import "slices"

// TargetStatement is the statement of a run's pass over the targets.
func TargetStatement() string {
	return targetStatement(slices.Concat(requestChecks, reservationChecks, recordChecks, laneChecks, []targetCheck{lifetimeCheck, queueAgeCheck}, targetNotes))
}
