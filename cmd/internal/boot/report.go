package boot

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
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

// NoArguments refuses a command line for a program that is told everything by its environment.
func NoArguments(p Process) error {
	if len(p.Args) > 0 {
		return &UsageError{"it takes no arguments, only the environment (see docs/configuration.md), not " + strings.Join(p.Args, " ")}
	}
	return nil
}
