package holdfast_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/client"
)

// The client of the HTTP API has the verbs of a tenant under their names, so that
// a program moves from one to the other.
func TestClientHasTheVerbs(t *testing.T) {
	t.Parallel()
	verbsOf := func(of reflect.Type, without ...string) (names []string) {
		for method := range of.Methods() {
			if !strings.HasSuffix(method.Name, "Tx") && !slices.Contains(without, method.Name) {
				names = append(names, method.Name)
			}
		}
		return names
	}
	library := verbsOf(reflect.TypeFor[*holdfast.Tenant](), "CreateUnits", "Observe") // units are imported over HTTP
	remote := verbsOf(reflect.TypeFor[*client.Client](), "Do", "Send", "Close")
	if diff := cmp.Diff(library, remote); diff != "" {
		t.Errorf("(-library +client)\n%s", diff)
	}
}
