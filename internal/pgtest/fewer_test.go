package pgtest

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFewer(t *testing.T) {
	t.Parallel()
	runs := 0
	rapid.Check(t, fewer(3, func(*rapid.T) { runs++ }))
	if runs != 3 {
		t.Errorf("a property was run %d times, want 3", runs)
	}
}

// After a failure rapid runs the property with other input, which passes or
// fails.
func TestFewerAfterAFailure(t *testing.T) {
	t.Parallel()
	runs, fails := 0, false
	property := fewer(2, func(*rapid.T) {
		if runs++; fails {
			panic("it fails")
		}
	})
	for i, fail := range []bool{false, true, false, false, true} {
		fails = fail
		if failed := panics(func() { property(&rapid.T{}) }); failed != fail || runs != i+1 {
			t.Errorf("after %d calls the property was run %d times; failed: %t, want %t", i+1, runs, failed, fail)
		}
	}
}

func panics(do func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	do()
	return false
}
