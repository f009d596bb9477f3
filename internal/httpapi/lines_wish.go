package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/requests"
)

// LineWish is a line of a request of several lines: units of a variant, of one
// of several variants, or of a block, or kits. It is exported for huma.
type LineWish struct {
	VariantID  variantID `json:"variant_id,omitempty" example:"shirt-m"`
	Allotment  allotment `json:"allotment,omitempty" example:"fan-club" doc:"With variant_id: the allotment whose units are wanted."`
	OneOf      []string  `json:"one_of,omitempty" doc:"Variants in the order of preference, in place of variant_id: the first that has all units serves the line. Unknown ones are skipped." example:"[\"shirt-m@berlin\",\"shirt-m@paris\"]"`
	Split      bool      `json:"split,omitempty" doc:"With one_of: each variant gives what it has, in their order, until the quantity is reached."`
	KitID      kitID     `json:"kit_id,omitempty" doc:"The kit that is wanted, quantity times, in place of a variant." example:"camping"`
	Quantity   int32     `json:"quantity,omitempty" doc:"Units, or kits." example:"2"`
	Block      blockID   `json:"block,omitempty" example:"hall" doc:"The block whose units are wanted, in place of a variant and a quantity."`
	UnitIDs    []string  `json:"unit_ids,omitempty" doc:"The units of the block that are wanted." example:"[\"A1\",\"A2\"]"`
	AnyOf      int32     `json:"any_of,omitempty" doc:"How many units of the block are wanted, whichever they are." example:"4"`
	Contiguous bool      `json:"contiguous,omitempty" doc:"With any_of: only neighbours, units with consecutive positions."`
}

func (w *LineWish) units() *UnitsWish {
	return &UnitsWish{Block: w.Block, UnitIDs: w.UnitIDs, AnyOf: w.AnyOf, Contiguous: w.Contiguous}
}

func (w *LineWish) fields() []field {
	return []field{
		{"variant_id", false, into(&w.VariantID, text[variantID](checkVariantID))},
		{"allotment", false, into(&w.Allotment, text[allotment](checkAllotment))},
		{"one_of", false, into(&w.OneOf, texts(requestrows.ChoiceMax))},
		{"split", false, into(&w.Split, boolean())},
		{"kit_id", false, into(&w.KitID, text[kitID](checkKitID))},
		{"quantity", false, into(&w.Quantity, whole[int32](1, inventory.MaxQuantity))},
		{"block", false, into(&w.Block, text[blockID](checkBlockID))},
		{"unit_ids", false, into(&w.UnitIDs, texts(unitrows.UnitsMax))},
		{"any_of", false, into(&w.AnyOf, whole[int32](1, unitrows.UnitsMax))},
		{"contiguous", false, into(&w.Contiguous, boolean())},
	}
}

// TransformSchema adds which fields go together.
func (LineWish) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	describe(s, new(LineWish).fields())
	s.AdditionalProperties = false
	s.OneOf = []*huma.Schema{
		{Required: []string{"variant_id", "quantity"}},
		{Required: []string{"one_of", "quantity"}},
		{Required: []string{"kit_id", "quantity"}},
		{Required: []string{"block", "unit_ids"}},
		{Required: []string{"block", "any_of"}},
	}
	return s
}

// check adds to wrong what is wrong with the fields that a line has, under the
// names that the prefix begins.
func (w *LineWish) check(given []string, prefix string, wrong fieldErrors) fieldErrors {
	has := func(name string) bool { return slices.Contains(given, name) }
	if slices.ContainsFunc([]string{"block", "unit_ids", "any_of", "contiguous"}, has) {
		for _, name := range []string{"one_of", "split", "kit_id"} {
			if has(name) {
				wrong = wrong.with(prefix+name, "must be left out with block, unit_ids, any_of and contiguous")
			}
		}
		return w.units().checkUnits(given, prefix, wrong)
	}
	if has("allotment") && has("one_of") {
		wrong = wrong.with(prefix+"allotment", "must be left out with one_of")
	}
	switch {
	case has("kit_id"):
		for _, name := range []string{"variant_id", "allotment", "one_of", "split"} {
			if has(name) {
				wrong = wrong.with(prefix+name, "must be left out with kit_id")
			}
		}
	case has("variant_id") && has("one_of"):
		wrong = wrong.with(prefix+"one_of", "must be left out with variant_id")
	case !has("variant_id") && !has("one_of"):
		wrong = wrong.with(prefix+"variant_id", "is required")
	case has("split") && !has("one_of"):
		wrong = wrong.with(prefix+"split", "must be left out without one_of")
	}
	if !has("quantity") {
		wrong = wrong.with(prefix+"quantity", "is required")
	}
	return wrong
}

// line is the line as the library has it.
func (w *LineWish) line() requests.Line {
	switch {
	case len(w.UnitIDs) > 0:
		return requests.Line{VariantID: string(w.Block), Quantity: int32(len(w.UnitIDs)), Units: &requests.Units{IDs: w.UnitIDs}}
	case w.Block != "":
		return requests.Line{VariantID: string(w.Block), Quantity: w.AnyOf, Units: &requests.Units{Any: !w.Contiguous, Contiguous: w.Contiguous}}
	case w.Allotment != "":
		return requests.Line{VariantID: string(w.VariantID), Quantity: w.Quantity, Units: &requests.Units{Allotment: string(w.Allotment)}}
	default:
		return requests.Line{VariantID: string(w.VariantID), Quantity: w.Quantity, OneOf: w.OneOf, Split: w.Split, KitID: string(w.KitID)}
	}
}

// decodeLines reads the lines, and adds to wrong what is wrong with each.
func decodeLines(all []json.RawMessage, wrong fieldErrors) ([]LineWish, fieldErrors) {
	lines := make([]LineWish, len(all))
	for i, value := range all {
		prefix := fmt.Sprintf("lines[%d].", i)
		given, err := decodeFields(value, &lines[i])
		switch found, _ := errors.AsType[fieldErrors](err); {
		case len(found) > 0:
			for _, e := range found {
				wrong = wrong.with(prefix+e.Field, e.Message)
			}
		case err != nil:
			wrong = wrong.with(fmt.Sprintf("lines[%d]", i), "must be a JSON object")
		default:
			wrong = lines[i].check(given, prefix, wrong)
		}
	}
	return lines, wrong
}

// submitLines is submit for several lines. It first checks that known blocks
// have the units that are named.
func (s *service) submitLines(ctx context.Context, req *request, cart cartID, w *UnitsWish) (response, error) {
	lines := make([]requests.Line, len(w.Lines))
	reading, cancel := context.WithTimeout(ctx, s.bounds.attempt)
	defer cancel()
	for i := range w.Lines {
		lines[i] = w.Lines[i].line()
		if len(w.Lines[i].UnitIDs) == 0 {
			continue
		}
		err := inventory.CheckUnits(reading, s.pool, req.principal.TenantID, lines[i].VariantID, lines[i].Units.IDs)
		if invalid, is := errors.AsType[*inventory.InvalidError](err); is {
			err = &inventory.InvalidError{Field: fmt.Sprintf("lines[%d].%s", i, invalid.Field), Message: invalid.Message}
		}
		if err != nil {
			return response{}, err
		}
	}
	return s.submit(req, string(cart), func(opts *holdfast.CallOpts) (holdfast.Outcome, error) {
		return s.tenant(req).AddLines(ctx, string(cart), requests.Lines{Items: lines, Partial: w.Partial}, opts)
	})
}

// LineOutcome is what a request holds for one of its lines. It is exported for
// huma.
type LineOutcome struct {
	VariantID    variantID         `json:"variant_id,omitempty"`
	Allotment    allotment         `json:"allotment,omitempty"`
	OneOf        []string          `json:"one_of,omitempty"`
	Block        blockID           `json:"block,omitempty"`
	KitID        kitID             `json:"kit_id,omitempty"`
	Quantity     int32             `json:"quantity" doc:"Units, or kits, asked for."`
	Held         int64             `json:"held" doc:"Units, or whole kits, that are held for the line, or were committed since; 0 for a digital variant."`
	Reason       requests.Reason   `json:"reason,omitempty" enum:"out_of_stock,unknown_variant,not_on_sale,quantity_not_allowed,limit_exceeded,part_of_kit,unknown_kit,unknown_allotment,cancelled,expired_in_queue,internal_error" doc:"Why the line came up short; left out if it did not."`
	Reservations []reservationJSON `json:"reservations" doc:"Those that were made for the line, in their present state."`
}

func lineBodies(outcomes []requests.LineOutcome) []LineOutcome {
	bodies := make([]LineOutcome, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		bodies[i] = LineOutcome{OneOf: o.OneOf, KitID: kitID(o.KitID), Quantity: o.Quantity, Held: o.Held, Reason: o.Reason, Reservations: reservationBodies(o.Reservations)}
		bodies[i].Allotment = allotmentOf(o.Units)
		if o.Units != nil && o.Units.Allotment == "" {
			bodies[i].Block = blockID(o.VariantID)
		} else {
			bodies[i].VariantID = variantID(o.VariantID)
		}
	}
	return bodies
}
