package requestrows

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

func validateKit(line *requests.Line, field func(string) string) error {
	if line.VariantID != "" || line.Units != nil || len(line.OneOf) > 0 || line.Split {
		return &inventory.InvalidError{Field: field("kit_id"), Message: "must be left out with a variant, a block or one_of"}
	}
	for _, p := range line.Parts {
		if int64(p.Quantity)*int64(line.Quantity) > inventory.MaxQuantity {
			return &inventory.InvalidError{
				Field:   field("quantity"),
				Message: fmt.Sprintf("must be at most %d: the kit has %d of %s", inventory.MaxQuantity/p.Quantity, p.Quantity, p.VariantID),
			}
		}
	}
	return inventory.ValidateID(field("kit_id"), line.KitID)
}

// KitParts returns the parts of all kits of a line: the units of each variant
// that the line needs. An unknown kit has one part, of an unknown variant.
func KitParts(line *requests.Line) []requests.KitPart {
	if len(line.Parts) == 0 {
		return []requests.KitPart{{VariantID: inventory.NoKitPart, Quantity: line.Quantity}}
	}
	parts := make([]requests.KitPart, len(line.Parts))
	for i, p := range line.Parts {
		parts[i] = requests.KitPart{VariantID: p.VariantID, Quantity: p.Quantity * line.Quantity}
	}
	return parts
}

// ExpandKits returns the lines with the parts of their kits as they are now, but
// keeps parts that a line has already.
func ExpandKits(ctx context.Context, db Querier, tenantID uuid.UUID, lines *requests.Lines) (*requests.Lines, error) {
	var ids []string
	for i := range lines.Items {
		if line := &lines.Items[i]; line.KitID != "" && len(line.Parts) == 0 {
			ids = append(ids, line.KitID)
		}
	}
	if len(ids) == 0 {
		return lines, nil
	}
	kits, err := inventory.GetKits(ctx, db, tenantID, ids)
	if err != nil {
		return nil, err
	}
	expanded := &requests.Lines{Items: slices.Clone(lines.Items), Partial: lines.Partial}
	for i := range expanded.Items {
		if line := &expanded.Items[i]; len(line.Parts) == 0 {
			line.Parts = kits[line.KitID].Parts
		}
	}
	return expanded, nil
}

// kitsOf is how many whole kits the reservations of a line have, held or
// committed. A part that is not tracked has none and is in every kit.
func kitsOf(line *requests.Line, rs []reservations.Reservation, parts []Part) (kits int64) {
	kits = -1
	for _, part := range line.Parts {
		units, untracked := int64(0), slices.ContainsFunc(parts, func(p Part) bool {
			return p.VariantID == part.VariantID && p.Status == requests.Done && p.Reservation == nil
		})
		for i := range rs {
			if rs[i].ResourceKey == part.VariantID && (rs[i].Status == reservations.Held || rs[i].Status == reservations.Committed) {
				units += rs[i].Quantity
			}
		}
		if n := units / int64(part.Quantity); !untracked && (kits < 0 || n < kits) {
			kits = n
		}
	}
	return max(kits, 0)
}

// hasAllParts reports whether parts of a line have all parts of its kits.
func hasAllParts(line *requests.Line, parts []Part) bool {
	for _, needed := range KitParts(line) {
		for i := range parts {
			if p := &parts[i]; p.VariantID == needed.VariantID && p.Status == requests.Done {
				needed.Quantity -= p.Quantity
			}
		}
		if needed.Quantity > 0 {
			return false
		}
	}
	return true
}
