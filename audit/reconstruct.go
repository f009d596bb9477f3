package audit

import (
	"encoding/json"
	"fmt"
	"maps"
)

// ReconstructState is a target's state as its record tells it: the members of every After, oldest record first, each
// replacing what earlier records said of it. It is shallow: a member that is an object is replaced whole. Without
// records it is nil.
//
// Error: a record whose After is no JSON object, by its id.
func ReconstructState(history []Record) (map[string]json.RawMessage, error) {
	var state map[string]json.RawMessage
	for i := range history {
		var after map[string]json.RawMessage
		if err := json.Unmarshal(history[i].After, &after); err != nil || after == nil {
			return nil, fmt.Errorf("reconstruct from audit row %d: its state is no object: %w", history[i].AuditID, err)
		}
		if state == nil {
			state = make(map[string]json.RawMessage, len(after))
		}
		maps.Copy(state, after)
	}
	return state, nil
}
