package httpapi_test

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast/holdfast/internal/httpapi"
)

// The document needs no database. Generate clients from it, or compare it with
// the released one.
func ExampleOpenAPI() {
	document, err := httpapi.OpenAPI()
	if err != nil {
		fmt.Println(err)
		return
	}
	var parsed struct {
		OpenAPI string
		Paths   map[string]map[string]struct{ Summary string }
	}
	if err := json.Unmarshal(document, &parsed); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(parsed.OpenAPI)
	fmt.Println(parsed.Paths["/v1/carts/{cart_id}/checkout"]["post"].Summary)
	// Output:
	// 3.1.0
	// Check out a cart
}
