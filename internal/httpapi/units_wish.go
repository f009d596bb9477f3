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

// UnitsWish is the form of an added item that asks for units of a block, for kits,
// or for several lines. It is exported for huma, which leaves out embedded fields of other types.
type UnitsWish struct {
	Block      blockID  `json:"block,omitempty" example:"hall" doc:"The block whose units are wanted, in place of variant_id and quantity."`
	UnitIDs    []string `json:"unit_ids,omitempty" doc:"The units of the block that are wanted." example:"[\"A1\",\"A2\"]"`
	AnyOf      int32    `json:"any_of,omitempty" doc:"How many units of the block are wanted, whichever they are." example:"4"`
	Contiguous bool     `json:"contiguous,omitempty" doc:"With any_of: only neighbours, units with consecutive positions."`
	KitID      kitID    `json:"kit_id,omitempty" doc:"The kit that is wanted, quantity times, in place of variant_id." example:"camping"`

	Lines   []LineWish `json:"lines,omitempty" doc:"Several lines, in place of all other fields but partial."`
	Partial bool       `json:"partial,omitempty" doc:"With lines: hold what there is of each line. Otherwise all units of all lines are held, or none."`

	rawLines []json.RawMessage // of a body that is being read
}

func (w *UnitsWish) otherFields() []field {
	set := func(value json.RawMessage) string {
		if value[0] != '[' || json.Unmarshal(value, &w.rawLines) != nil {
			return "must be a list of objects"
		}
		if n := len(w.rawLines); n == 0 || n > requestrows.LinesMax {
			return fmt.Sprintf("must have 1 to %d items", requestrows.LinesMax)
		}
		return ""
	}
	describe := func(s *huma.Schema) { s.MinItems, s.MaxItems = new(1), new(requestrows.LinesMax) }
	return []field{
		{"block", false, into(&w.Block, text[blockID](checkBlockID))},
		{"unit_ids", false, into(&w.UnitIDs, texts(unitrows.UnitsMax))},
		{"any_of", false, into(&w.AnyOf, whole[int32](1, unitrows.UnitsMax))},
		{"contiguous", false, into(&w.Contiguous, boolean())},
		{"kit_id", false, into(&w.KitID, text[kitID](checkKitID))},
		{"lines", false, value{set, describe}},
		{"partial", false, into(&w.Partial, boolean())},
	}
}

func (w *UnitsWish) checkOther(names []string, wrong fieldErrors) fieldErrors {
	several := slices.Contains(names, "lines")
	switch {
	case several || slices.Contains(names, "partial"):
	case slices.Contains(names, "kit_id"):
		return checkKit(names, wrong)
	default:
		return w.checkUnits(names, "", wrong)
	}
	for _, name := range names {
		if name != "lines" && name != "partial" {
			wrong = wrong.with(name, "must be left out with lines and partial")
		}
	}
	if !several {
		return wrong.with("lines", "is required")
	}
	w.Lines, wrong = decodeLines(w.rawLines, wrong)
	w.rawLines = nil
	return wrong
}

// checkKit adds to wrong what is wrong with a body for kits.
func checkKit(names []string, wrong fieldErrors) fieldErrors {
	for _, name := range names {
		if name != "kit_id" && name != "quantity" {
			wrong = wrong.with(name, "must be left out with kit_id")
		}
	}
	if !slices.Contains(names, "quantity") {
		wrong = wrong.with("quantity", "is required")
	}
	return wrong
}

// checkUnits adds to wrong what is wrong with a body for units of a block, under
// the names that the prefix begins.
func (w *UnitsWish) checkUnits(names []string, prefix string, wrong fieldErrors) fieldErrors {
	given := func(name string) bool { return slices.Contains(names, name) }
	for _, name := range []string{"variant_id", "quantity", "allotment"} {
		if given(name) {
			wrong = wrong.with(prefix+name, "must be left out with block, unit_ids, any_of and contiguous")
		}
	}
	if !given("block") {
		wrong = wrong.with(prefix+"block", "is required")
	}
	switch {
	case given("unit_ids") && given("any_of"):
		wrong = wrong.with(prefix+"any_of", "must be left out with unit_ids")
	case !given("unit_ids") && !given("any_of"):
		wrong = wrong.with(prefix+"unit_ids", "is required, unless any_of is given")
	case given("unit_ids") && given("contiguous"):
		wrong = wrong.with(prefix+"contiguous", "must be left out with unit_ids")
	}
	if given("wait_for_stock") && (given("unit_ids") || given("contiguous")) {
		wrong = wrong.with("wait_for_stock", "must be left out with unit_ids and contiguous")
	}
	invalid, is := errors.AsType[*inventory.InvalidError](inventory.ValidateUnits(w.UnitIDs, len(w.UnitIDs)))
	if is {
		wrong = wrong.with(prefix+invalid.Field, invalid.Message)
	}
	return wrong
}

func (w *UnitsWish) describeForms(schema *huma.Schema) {
	schema.Required = nil
	schema.OneOf = []*huma.Schema{
		{Required: []string{"variant_id", "quantity"}},
		{Required: []string{"block", "unit_ids"}},
		{Required: []string{"block", "any_of"}},
		{Required: []string{"kit_id", "quantity"}},
		{Required: []string{"lines"}},
	}
}

// submitUnits is submit for units of a block. It first checks that a known
// block has the units that are named.
func (s *service) submitUnits(ctx context.Context, req *request, cart cartID, w *addItemBody) (response, error) {
	if len(w.UnitIDs) > 0 {
		reading, cancel := context.WithTimeout(ctx, s.bounds.attempt)
		defer cancel()
		if err := inventory.CheckUnits(reading, s.pool, req.principal.TenantID, string(w.Block), w.UnitIDs); err != nil {
			return response{}, err
		}
	}
	return s.submit(req, string(cart), func(opts *holdfast.CallOpts) (holdfast.Outcome, error) {
		opts.WaitForStock = w.WaitForStock
		units := requests.Units{IDs: w.UnitIDs, Any: len(w.UnitIDs) == 0 && !w.Contiguous, Contiguous: w.Contiguous}
		return s.tenant(req).AddUnits(ctx, string(cart), string(w.Block), units, w.AnyOf, opts)
	})
}

// UnitsAsked is the part of a request's response that is about units of a
// block. It is left out of other requests. It is exported for huma.
type UnitsAsked struct {
	Block      blockID  `json:"block,omitempty" doc:"The block, which is also the variant_id; left out for units that are counted."`
	UnitIDs    []string `json:"unit_ids,omitempty" doc:"The units that were asked for; once they are held, those of the reservation."`
	AnyOf      int32    `json:"any_of,omitempty" doc:"How many units were asked for, whichever they are."`
	Contiguous bool     `json:"contiguous,omitempty" doc:"Only neighbours were asked for."`
}

func unitsOfRequest(r *requests.Request) (asked UnitsAsked) {
	if r.Units == nil || r.Units.Allotment != "" {
		return asked
	}
	asked = UnitsAsked{Block: blockID(r.VariantID), UnitIDs: r.Units.IDs, Contiguous: r.Units.Contiguous}
	if len(r.Units.IDs) == 0 {
		asked.AnyOf = r.Quantity
	}
	return asked
}
