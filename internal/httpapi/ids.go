package httpapi

import (
	"github.com/danielgtaylor/huma/v2"

	validate "github.com/holdfast/holdfast/internal/invalid" // this package has a kind invalid
	"github.com/holdfast/holdfast/internal/inventory"
)

// variantID, cartID and customerID are ids that callers choose. Parameters and
// fields of these types are validated.
type (
	variantID  string
	cartID     string
	customerID string
	blockID    string
	unitID     string
)

// Schema describes the id, for huma.
func (variantID) Schema(huma.Registry) *huma.Schema { return idSchema("The variant's id.") }

// Schema describes the id, for huma.
func (cartID) Schema(huma.Registry) *huma.Schema { return idSchema("The cart's id.") }

// Schema describes the id, for huma.
func (customerID) Schema(huma.Registry) *huma.Schema { return idSchema("The customer's id.") }

// Schema describes the id, for huma.
func (blockID) Schema(huma.Registry) *huma.Schema { return idSchema("The block's id.") }

// Schema describes the id, for huma.
func (unitID) Schema(huma.Registry) *huma.Schema {
	return idSchema("The unit's id, unique within its block.")
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *blockID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkBlockID(string(*id)), prefix)
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *unitID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(inventory.ValidateID("unit_id", string(*id)), prefix)
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *variantID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkVariantID(string(*id)), prefix)
}

// Resolve validates the id as a parameter of a path, for huma.
func (id *cartID) Resolve(_ huma.Context, prefix *huma.PathBuffer) []error {
	return resolved(checkCartID(string(*id)), prefix)
}

func checkVariantID(id string) error { return inventory.ValidateID("variant_id", id) }

func checkCartID(id string) error { return inventory.ValidateID("cart_id", id) }

func checkBlockID(id string) error { return inventory.ValidateID("block", id) }

func checkSubject(id string) error { return checkCustomerID("subject", id) }

// checkCustomerID checks a customer's id. Unlike the ids of paths it may be
// only dots or only slashes.
func checkCustomerID(field, id string) error { return validate.Check(field, id, inventory.MaxIDLength) }

func idSchema(description string) *huma.Schema {
	least, most := 1, inventory.MaxIDLength
	return &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &most, Description: description}
}

// resolved returns the error of a check in the form in which huma collects
// errors.
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

// numberSchema describes a whole number from 1 that is a parameter.
func numberSchema(most int64, description string) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeInteger, Format: "int64", Description: description}
	limitNumber(s, 1, most)
	return s
}
