package inventory

import (
	"encoding/json"
	"strings"

	"github.com/holdfast/holdfast/internal/lanes"
)

// stockForm is how an import of stocks is read.
var stockForm = rowForm[edit]{
	id:       "variant_id",
	required: []string{"variant_id", "stock"},
	csv: map[string]func(e *edit, cell string) error{
		"variant_id":       func(e *edit, cell string) error { e.variantID = cell; return nil },
		"stock":            func(e *edit, cell string) error { return csvNumber("stock", cell, &e.patch.Stock) },
		"tracked":          func(e *edit, cell string) error { return csvBool("tracked", cell, &e.patch.Tracked) },
		"backorder":        func(e *edit, cell string) error { return csvBool("backorder", cell, &e.patch.Backorder) },
		"hold_ttl_seconds": func(e *edit, cell string) error { return csvNumber("hold_ttl_seconds", cell, &e.patch.HoldTTLSeconds) },
		"max_per_cart":     func(e *edit, cell string) error { return csvNumber("max_per_cart", cell, &e.patch.MaxPerCart) },
		"lane": func(e *edit, cell string) error {
			e.patch.Lane = new(lanes.Wish(strings.Clone(strings.TrimSpace(cell))))
			return nil
		},
	},
	json: map[string]func(e *edit, raw json.RawMessage) error{
		"variant_id": func(e *edit, raw json.RawMessage) error { return jsonText("variant_id", raw, &e.variantID) },
		"stock": func(e *edit, raw json.RawMessage) error {
			return jsonValue("stock", "a whole number", raw, &e.patch.Stock)
		},
		"tracked": func(e *edit, raw json.RawMessage) error {
			return jsonValue("tracked", "true or false", raw, &e.patch.Tracked)
		},
		"backorder": func(e *edit, raw json.RawMessage) error {
			return jsonValue("backorder", "true or false", raw, &e.patch.Backorder)
		},
		"hold_ttl_seconds": func(e *edit, raw json.RawMessage) error {
			return jsonClearable("hold_ttl_seconds", raw, &e.patch.HoldTTLSeconds)
		},
		"max_per_cart": func(e *edit, raw json.RawMessage) error {
			return jsonClearable("max_per_cart", raw, &e.patch.MaxPerCart)
		},
		"lane": func(e *edit, raw json.RawMessage) error { return jsonValue("lane", "text", raw, &e.patch.Lane) },
	},
	check: func(e *edit) error {
		e.variantID = strings.Clone(e.variantID)
		if err := ValidateID("variant_id", e.variantID); err != nil {
			return err
		}
		return e.patch.Validate()
	},
}
