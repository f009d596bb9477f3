package boot

import (
	"encoding/json"
	"fmt"
	"io"
)

// Report prints what a pass did as one line of JSON, also when it failed on the way, and returns its error.
func Report(w io.Writer, report any, failure error) error {
	line, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if _, err := fmt.Fprintf(w, "%s\n", line); err != nil && failure == nil {
		failure = fmt.Errorf("print the report: %w", err)
	}
	return failure
}
