package boot

import (
	"encoding/json"
	"fmt"
	"io"
)

// Report prints what a pass of the job did as one line of JSON, an object that begins with the job's name, also when it
// failed on the way, and returns its error.
func Report(w io.Writer, job string, report any, failure error) error {
	line, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	rest := line[1:]
	if len(rest) > 1 {
		rest = append([]byte(","), rest...)
	}
	line = append(fmt.Appendf(nil, `{"job":%q`, job), rest...)
	if _, err := fmt.Fprintf(w, "%s\n", line); err != nil && failure == nil {
		failure = fmt.Errorf("print the report: %w", err)
	}
	return failure
}
