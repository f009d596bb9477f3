package pgtest

import (
	"os"

	"pgregory.net/rapid"
)

// fewerRuns is enough for each step of a model to follow each other one.
const fewerRuns = 25

// Fewer limits rapid.Check to 25 runs of a property that works on a database,
// unless HOLDFAST_TEST_LONG is set. Once a run has failed, there is no limit, so
// that rapid can find the smallest run that fails.
func Fewer(property func(*rapid.T)) func(*rapid.T) {
	if os.Getenv("HOLDFAST_TEST_LONG") != "" {
		return property
	}
	return fewer(fewerRuns, property)
}

func fewer(runs int, property func(*rapid.T)) func(*rapid.T) {
	passed, failed := 0, false
	return func(t *rapid.T) {
		if passed == runs && !failed {
			return
		}
		returned := false
		defer func() { failed = failed || !returned || t.Failed() }()
		property(t)
		returned = true
		passed = min(passed+1, runs)
	}
}
