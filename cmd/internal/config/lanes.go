package config

import (
	"slices"
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
