package reservations_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// linked are the modules that a program with the kernel may link, in addition
// to the standard library.
var linked = []string{
	"github.com/jackc/pgx/v5", "github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "github.com/jackc/puddle/v2",
	"golang.org/x/text", "golang.org/x/sync", // required by pgx
	"github.com/google/uuid",
	"github.com/holdfast/holdfast/reservations", "github.com/holdfast/holdfast/audit",
	"github.com/holdfast/holdfast/internal/auditrows",
	"github.com/holdfast/holdfast/internal/horizon", "github.com/holdfast/holdfast/internal/pg",
	"github.com/holdfast/holdfast/internal/pg", "github.com/holdfast/holdfast/internal/pg",
	"github.com/holdfast/holdfast/internal/reservationrows", "github.com/holdfast/holdfast/internal/sleep",
	"github.com/holdfast/holdfast/internal/pg", "github.com/holdfast/holdfast/internal/unitrows", "github.com/holdfast/holdfast/postings",
}

// A program that uses only the library links Postgres, ids and the standard
// library: no queue, no HTTP framework, no telemetry. The architecture test
// checks the direct imports of the packages; this test checks all transitive
// ones.
func TestLinksLittle(t *testing.T) {
	t.Parallel()
	const form = `{{if not .Standard}}{{.ImportPath}}{{end}}`
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", form, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := strings.Fields(string(out))
	for _, path := range found {
		if !slices.ContainsFunc(linked, func(may string) bool { return path == may || strings.HasPrefix(path, may+"/") }) {
			t.Errorf("the kernel links %s", path)
		}
	}
	if !slices.Contains(found, "github.com/google/uuid") {
		t.Errorf("the list of dependencies is wrong: %v", found)
	}
}
