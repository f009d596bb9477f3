package boot

import (
	"fmt"
	"slices"
	"strings"
)

// AskedForHelp prints the help on stdout if the command line asks for it and for nothing else; the program then ends.
func AskedForHelp(p Process, help string) (asked bool, err error) {
	if len(p.Args) != 1 || !slices.Contains([]string{"--help", "-help", "-h", "help"}, p.Args[0]) {
		return false, nil
	}
	if _, err := fmt.Fprint(p.Stdout, help); err != nil {
		return true, fmt.Errorf("print the help: %w", err)
	}
	return true, nil
}

// OnlyHelp is AskedForHelp for a program whose other settings are in its environment: any other command line is a
// *UsageError.
func OnlyHelp(p Process, help string) (asked bool, err error) {
	if asked, err = AskedForHelp(p, help); asked || len(p.Args) == 0 {
		return asked, err
	}
	return false, &UsageError{fmt.Sprintf("it takes no arguments but --help, not %s: the environment configures it (docs/configuration.md)", strings.Join(p.Args, " "))}
}

// EnvironmentHelp ends the help of the programs that serve or maintain a database.
const EnvironmentHelp = `
It is configured by the environment, which docs/configuration.md lists; DATABASE_URL is required:
DATABASE_URL=postgres://user:password@host:5432/database. The log is JSON lines on stderr.
`
