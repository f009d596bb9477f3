package inventory

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/unitrows"
)

// hall returns inputs with a block of units s1, s2 and so on, one per letter: f
// is free, l is in a due hold that another transaction has locked, t is taken.
func hall(letters string) inputs {
	ref := Ref{shop, "hall"}
	c := counterOf("hall", int64(len(letters)))
	c.NamedUnits = true
	in := inputsOf(c)
	in.lockedDue, in.lockedUnits = make(map[Ref]int64), map[Ref]map[string]bool{ref: {}}
	var units blockUnits
	for i, letter := range letters {
		u := unitrows.Unit{UnitID: fmt.Sprintf("s%d", i+1), Position: int64(i + 1), Status: unitrows.Active}
		if letter != 'f' {
			u.Status = unitrows.PendingInactive
			c.Reserved++
		}
		if letter == 'l' {
			in.lockedDue[ref]++
			in.lockedUnits[ref][u.UnitID] = true
		}
		units.named = append(units.named, u)
	}
	in.units = map[Ref]blockUnits{ref: units}
	return in
}

// ofHall makes requests of different carts: each for the named units.
func ofHall(wanted ...[]string) (requests []HoldRequest) {
	for i, ids := range wanted {
		r := add(fmt.Sprint("cart-", i), "hall", int64(len(ids)))
		r.Block, r.UnitIDs = true, ids
		requests = append(requests, r)
	}
	return requests
}

// neighbours makes requests of different carts: each for so many neighbours.
func neighbours(wanted ...int64) (requests []HoldRequest) {
	for i, n := range wanted {
		r := add(fmt.Sprint("cart-", i), "hall", n)
		r.Block, r.Contiguous = true, true
		requests = append(requests, r)
	}
	return requests
}

// Of the requests for the same units one waits, of those for neighbours as many
// as units are locked. None is rejected that could fit after those that wait.
func TestDecideLockedUnits(t *testing.T) {
	t.Parallel()
	const wait, no, yes = LockedDue, OutOfStock, Granted
	one := []string{"s1"}
	for name, c := range map[string]struct {
		in       inputs
		requests []HoldRequest
		want     []Outcome
	}{
		"one unit, five carts":                   {hall("lfff"), ofHall(one, one, one, one, one), []Outcome{wait, no, no, no, no}},
		"one unit of two, sold out":              {hall("ll"), ofHall(one, one, []string{"s2"}, one), []Outcome{wait, no, wait, no}},
		"a taken unit, sold out":                 {hall("lt"), ofHall([]string{"s2"}, one), []Outcome{no, wait}},
		"the same and another":                   {hall("lfff"), ofHall(one, []string{"s2", "s1"}, []string{"s2"}), []Outcome{wait, no, yes}},
		"one that needs more may fail":           {hall("lfff"), ofHall([]string{"s1", "s2"}, one, []string{"s2"}, one), []Outcome{wait, wait, yes, no}},
		"one that shares a unit may fail":        {hall("lfff"), ofHall([]string{"s1", "s2"}, []string{"s1", "s3"}), []Outcome{wait, wait}},
		"neighbours, one locked":                 {hall("flfttf"), neighbours(2, 2, 2, 2, 2, 2, 2, 2, 2, 2), []Outcome{wait, no, no, no, no, no, no, no, no, no}},
		"neighbours, two locked":                 {hall("flftlf"), neighbours(2, 2, 2), []Outcome{wait, wait, no}},
		"fewer neighbours than one that waits":   {hall("flftf"), neighbours(3, 2, 2, 3), []Outcome{wait, wait, no, no}},
		"more neighbours than could become free": {hall("tltt"), neighbours(2, 1, 1), []Outcome{no, wait, no}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, decide(c.requests, c.in).outcomes); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}
