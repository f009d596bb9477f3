package tenants

import (
	"fmt"
	"slices"
)

// Scope is a part of the API that a key opens.
type Scope string

// The scopes: the storefront, the back office, the operator. The first two reach one tenant's rows; ScopeOps also controls
// the lanes, which all tenants share.
const (
	ScopeCart  Scope = "cart"
	ScopeStock Scope = "stock"
	ScopeOps   Scope = "ops"
)

// AllScopes returns every scope there is.
func AllScopes() []Scope { return []Scope{ScopeCart, ScopeStock, ScopeOps} }

// normalScopes returns the scopes sorted and each once, or an *InvalidError for none or an unknown one.
func normalScopes(scopes []Scope) ([]Scope, error) {
	if len(scopes) == 0 {
		return nil, &InvalidError{Field: "scopes", Message: "must name at least one of cart, stock, ops"}
	}
	for i, s := range scopes {
		if !slices.Contains(AllScopes(), s) {
			return nil, &InvalidError{
				Field:   fmt.Sprintf("scopes[%d]", i),
				Message: fmt.Sprintf("must be cart, stock or ops, not %.40q", string(s)),
			}
		}
	}
	sorted := slices.Sorted(slices.Values(scopes))
	return slices.Compact(sorted), nil
}
