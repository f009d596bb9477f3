package httpapi

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/inventory"
)

// variantID, cartID and customerID are ids that a caller chose. As parameters and as fields they check themselves.
type (
	variantID  string
	cartID     string
	customerID string
)

// Schema describes the id; huma asks.
func (variantID) Schema(huma.Registry) *huma.Schema { return idSchema("The variant's id.") }

// Schema describes the id; huma asks.
func (cartID) Schema(huma.Registry) *huma.Schema { return idSchema("The cart's id.") }

// Schema describes the id; huma asks.
func (customerID) Schema(huma.Registry) *huma.Schema { return idSchema("The customer's id.") }

// Resolve checks the id as a parameter of a path; huma asks.
func (id *variantID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkVariantID(string(*id)), prefix)
}

// Resolve checks the id as a parameter of a path; huma asks.
func (id *cartID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkCartID(string(*id)), prefix)
}

func checkVariantID(id string) error { return inventory.ValidateID("variant_id", id) }

func checkCartID(id string) error { return inventory.ValidateID("cart_id", id) }

func checkSubject(id string) error { return inventory.ValidateID("subject", id) }

func idSchema(description string) *huma.Schema {
	least, most := 1, inventory.MaxIDLength
	return &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &most, Description: description}
}

// resolved is the error of a check in the form in which huma collects them.
func resolved(err error, prefix *huma.PathBuffer) []error {
	if err == nil {
		return nil
	}
	message := err.Error()
	if wrong, ok := err.(*inventory.InvalidError); ok { //nolint:errorlint // the checks wrap nothing
		message = wrong.Message
	}
	return []error{&huma.ErrorDetail{Location: prefix.String(), Message: message}}
}
