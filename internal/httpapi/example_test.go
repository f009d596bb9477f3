package httpapi_test

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast/holdfast/internal/httpapi"
)

// The document needs no database. Generate clients from it, or compare it with
// the released one.
func ExampleOpenAPI() {
	document, err := httpapi.OpenAPI("1.2.3")
	if err != nil {
		fmt.Println(err)
		return
	}
	var parsed struct {
		OpenAPI string
		Info    struct{ Version string }
		Paths   map[string]map[string]struct{ Summary string }
	}
	if err := json.Unmarshal(document, &parsed); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(parsed.OpenAPI, parsed.Info.Version)
	fmt.Println(parsed.Paths["/v1/carts/{cart_id}/checkout"]["post"].Summary)
	// Output:
	// 3.1.0 1.2.3
	// Check out a cart
}
