package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/requests"
)

// LaneNames are the lanes that a worker serves, each once.
type LaneNames []string

// EnvDecode reads the names, separated by commas.
func (l *LaneNames) EnvDecode(value string) error {
	var names LaneNames
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if name != requests.Hot && name != requests.Normal {
			return ruleError("must be hot, normal, or both with a comma between")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	*l = names
	return nil
}

// Slots are slots of the hot lane, sorted, each once.
type Slots []int16

// EnvDecode reads slots and ranges of them, separated by commas: 0-7,9.
func (s *Slots) EnvDecode(value string) error {
	if value == "" { // not set
		return nil
	}
	const rule = ruleError("must be slots between 0 and 1023 such as 0-7,9")
	var slots Slots
	for part := range strings.SplitSeq(value, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err := slot(low)
		if err != nil {
			return rule
		}
		last, err := slot(high)
		if err != nil || last < first {
			return rule
		}
		for n := first; n <= last; n++ {
			slots = append(slots, n)
		}
	}
	slices.Sort(slots)
	*s = slices.Compact(slots)
	return nil
}

func slot(text string) (int16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n >= SlotsMax {
		err = strconv.ErrRange
	}
	return int16(n), err
}
