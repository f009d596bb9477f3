package inventory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
)

// edit is one requested change: a patch, or a delta of the stock that is not 0.
type edit struct {
	variantID string
	patch     StockPatch
	delta     int64
}

// editResult is the result of an edit: the stock after it, or why it was
// refused (ErrStockRequired, ErrUnknownVariant, ErrBelowReserved,
// *InvalidError).
type editResult struct {
	stock   Stock
	refused error
}

// patched returns the stock after the patch, or ErrBelowReserved or an
// *InvalidError.
func (s Stock) patched(p StockPatch) (Stock, error) {
	due := s.due()
	replace(&s.Stock, p.Stock)
	replace(&s.Tracked, p.Tracked)
	replace(&s.Backorder, p.Backorder)
	replace(&s.Lane, p.Lane)
	replace(&s.Admission, p.Admission)
	s.HoldTTLSeconds = cleared(s.HoldTTLSeconds, p.HoldTTLSeconds)
	s.MaxPerCart = cleared(s.MaxPerCart, p.MaxPerCart)
	switch {
	case p.PreorderMax != nil && *p.PreorderMax > 0 && !s.Backorder:
		return s, &InvalidError{Field: "preorder_max", Message: "needs backorder"}
	case p.PreorderMax != nil && *p.PreorderMax > 0:
		s.PreorderMax = p.PreorderMax
	case p.PreorderMax != nil || !s.Backorder:
		s.PreorderMax = nil
	}
	s.Sale = s.Sale.patched(p.Sale)
	if err := s.Sale.validate(); err != nil {
		return s, err
	}
	s.Available = s.Stock + s.preorders() - s.Reserved + due
	if !s.covered() {
		return s, ErrBelowReserved
	}
	return s, nil
}

// adjusted returns the stock with delta more units, or why it can't have them.
func (s Stock) adjusted(delta int64) (Stock, error) {
	s.Stock += delta
	s.Available += delta
	switch {
	case s.NamedUnits:
		return s, &InvalidError{Field: "variant_id", Message: "names a block: its units have their own identity, import them instead"}
	case s.Stock > MaxStock:
		return s, &InvalidError{Field: "delta", Message: "would take the stock above " + strconv.Itoa(MaxStock)}
	case !s.covered():
		return s, ErrBelowReserved
	case s.Stock < 0 && delta < 0:
		return s, &InvalidError{Field: "delta", Message: "would take the stock below 0"}
	}
	return s, nil
}

func replace[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

// cleared returns the field after the patch's value, of which 0 clears the
// field.
func cleared[T comparable](field, value *T) *T {
	var zero T
	switch {
	case value == nil:
		return field
	case *value == zero:
		return nil
	}
	return value
}

// counts returns the first field of the patch that a block does not have, ""
// if there is none.
func (p StockPatch) counts() string {
	switch {
	case p.Stock != nil:
		return "stock"
	case p.Tracked != nil && !*p.Tracked:
		return "tracked"
	case p.Backorder != nil && *p.Backorder:
		return "backorder"
	}
	return ""
}

// creates reports whether the patch suffices to make a variant.
func (p StockPatch) creates() bool { return p.Stock != nil || p.Tracked != nil && !*p.Tracked }

// newStock is the variant that the patch makes, or an *InvalidError.
func (p StockPatch) newStock(tenantID uuid.UUID, variantID string) (Stock, error) {
	return Stock{TenantID: tenantID, VariantID: variantID, Tracked: true, Lane: lanes.WishAuto, Admission: AdmissionOpen}.patched(p)
}

// editTx applies the edits in their order, each to what the ones before it
// left, and records those that change something. Their ids and ranges are
// valid. The results are in the order of the edits.
//
// together means all edits or none: if one is refused, nothing is written.
//
// One statement locks all stock rows in one order and makes the missing ones.
// So calls that share several variants wait for each other and cannot deadlock.
func editTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, edits []edit, together bool, origin audit.Origin) ([]editResult, error) {
	made, found, err := openTx(ctx, tx, tenantID, edits)
	if err != nil {
		return nil, err
	}
	var (
		results = make([]editResult, len(edits))
		now     = make(map[string]Stock, len(edits))
		writes  = make(map[string]Stock)
		entries []audit.Entry
	)
	for i, e := range edits {
		before, known := now[e.variantID]
		if !known {
			before, known = found[e.variantID]
		}
		after, refused := before, error(nil)
		switch stock, isNew := made[e.variantID]; {
		case known && e.delta != 0:
			after, refused = before.adjusted(e.delta)
		case known && before.NamedUnits && e.patch.counts() != "":
			refused = &InvalidError{Field: e.patch.counts(), Message: "is fixed for a block: its units have their own identity, import them instead"}
		case known:
			after, refused = before.patched(e.patch)
		case isNew && e.patch.creates():
			after = stock
		case e.patch.creates():
			_, refused = e.patch.newStock(tenantID, e.variantID)
		case e.delta != 0:
			refused = ErrUnknownVariant
		default:
			refused = ErrStockRequired
		}
		if refused != nil {
			results[i] = editResult{refused: refused}
			continue
		}
		results[i].stock, now[e.variantID] = after, after
		var from *Stock
		if known {
			from = &before
		}
		entry, err := e.entry(from, after, origin)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(entry.Before, entry.After) {
			continue
		}
		entries = append(entries, entry)
		if known {
			writes[e.variantID] = after
		}
	}
	if err := unmakeTx(ctx, tx, tenantID, edits, made); err != nil {
		return nil, err
	}
	if together && slices.ContainsFunc(results, func(r editResult) bool { return r.refused != nil }) {
		return results, nil
	}
	return results, writeTx(ctx, tx, tenantID, writes, entries, results)
}

// unmakeTx deletes the stocks that were made although no edit suffices for it:
// those that another transaction deleted while this one waited for their lock.
func unmakeTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, edits []edit, made map[string]Stock) error {
	for _, e := range edits {
		_, isMade := made[e.variantID]
		suffices := slices.ContainsFunc(edits, func(other edit) bool { return other.variantID == e.variantID && other.patch.creates() })
		if !isMade || suffices {
			continue
		}
		if _, err := tx.Exec(ctx, deleteSQL, tenantID, e.variantID); err != nil {
			return fmt.Errorf("leave out stock %s: %w", e.variantID, err)
		}
	}
	return nil
}

// entry returns the audit entry of the edit. A nil before means that the
// variant is new.
func (e *edit) entry(before *Stock, after Stock, origin audit.Origin) (audit.Entry, error) {
	action := "stock.set"
	if e.delta != 0 {
		action = "stock.adjusted"
	}
	return entry(action, before, after, origin)
}

// openSQL makes the missing variants and locks the existing ones, in one pass
// over the sorted keys. The ON CONFLICT update locks the row and, because its
// condition is false, writes nothing. A patch that does not suffice to make a
// variant is included only if the variant exists; see unmakeTx.
const openSQL = `
INSERT INTO inventory_stocks AS s (tenant_id, variant_id, stock, tracked, backorder, hold_ttl_seconds, max_per_cart, lane, admission,
                                   preorder_max, sale, waiting)
SELECT $1, n.variant_id, n.stock, n.tracked, n.backorder, n.hold_ttl_seconds, n.max_per_cart, n.lane, n.admission, n.preorder_max, n.sale::jsonb,
       EXISTS (SELECT FROM waiting_requests AS w WHERE w.tenant_id = $1 AND w.variant_id = n.variant_id) -- of a deleted stock
FROM unnest($2::text[], $3::boolean[], $4::bigint[], $5::boolean[], $6::boolean[], $7::integer[], $8::integer[], $9::text[], $10::text[],
            $11::bigint[], $12::text[])
    AS n (variant_id, creates, stock, tracked, backorder, hold_ttl_seconds, max_per_cart, lane, admission, preorder_max, sale)
WHERE n.creates
   OR EXISTS (SELECT FROM inventory_stocks AS e WHERE e.tenant_id = $1 AND e.variant_id = n.variant_id)
ORDER BY n.variant_id
ON CONFLICT (tenant_id, variant_id) DO UPDATE
SET updated_at = s.updated_at
WHERE false
RETURNING
    s.tenant_id, s.variant_id, s.stock, s.reserved, s.stock + coalesce(s.preorder_max, 0) - s.reserved AS available, s.tracked, s.backorder,
    s.hold_ttl_seconds, s.max_per_cart, s.named_units, s.lane, s.admission, s.preorder_max, s.sale, s.created_at, s.updated_at`

// readSQL is a separate statement after the lock, so that its snapshot has all
// that was committed before.
const readSQL = selectStocks + `WHERE s.tenant_id = $1 AND s.variant_id = ANY ($2::text[])`

// openTx locks the variants of the edits. It returns those that it made, each
// from the first edit that suffices, and those that it found.
func openTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, edits []edit) (made, found map[string]Stock, err error) {
	var (
		at      = make(map[string]int, len(edits))
		creates []bool
		stocks  columns
	)
	for _, e := range edits {
		stock, invalid := e.patch.newStock(tenantID, e.variantID)
		suffices := e.patch.creates() && invalid == nil
		i, seen := at[e.variantID]
		if !seen {
			at[e.variantID] = len(creates)
			creates = append(creates, suffices)
			stocks.add(stock)
		} else if !creates[i] && suffices {
			creates[i] = true
			stocks.set(i, stock)
		}
	}
	b := &pgx.Batch{}
	opened := pg.Collect(b, toStock, openSQL, tenantID, stocks.variant, creates, stocks.stock, stocks.tracked, stocks.backorder, stocks.ttl,
		stocks.most, stocks.lane, stocks.admission, stocks.preorders, stocks.sale)
	read := pg.Collect(b, toStock, readSQL, tenantID, stocks.variant)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, fmt.Errorf("lock %d stocks: %w", len(creates), err)
	}
	made, found = byID(*opened), byID(*read)
	for id := range made {
		delete(found, id)
	}
	return made, found, nil
}

func byID(list []Stock) map[string]Stock {
	stocks := make(map[string]Stock, len(list))
	for _, s := range list {
		stocks[s.VariantID] = s
	}
	return stocks
}

const writeSQL = `
UPDATE inventory_stocks AS s
SET stock = w.stock,
    tracked = w.tracked,
    backorder = w.backorder,
    hold_ttl_seconds = w.hold_ttl_seconds,
    max_per_cart = w.max_per_cart,
    lane = w.lane,
    admission = w.admission,
    preorder_max = w.preorder_max,
    sale = w.sale::jsonb,
    updated_at = clock_timestamp()
FROM unnest($2::text[], $3::bigint[], $4::boolean[], $5::boolean[], $6::integer[], $7::integer[], $8::text[], $9::text[], $10::bigint[], $11::text[])
    AS w (variant_id, stock, tracked, backorder, hold_ttl_seconds, max_per_cart, lane, admission, preorder_max, sale)
WHERE s.tenant_id = $1
  AND s.variant_id = w.variant_id
  AND (s.reserved <= w.stock + coalesce(w.preorder_max, 0) OR w.backorder AND w.preorder_max IS NULL OR NOT w.tracked)
RETURNING s.variant_id, s.updated_at`

// writeTx writes the last state of each variant once, because an UPDATE applies
// only one of several matching rows, and the audit entries in their order. It
// sets the time of the change in the results.
func writeTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, writes map[string]Stock, entries []audit.Entry, results []editResult) error {
	if len(entries) == 0 {
		return nil
	}
	var stocks columns
	for _, s := range writes {
		stocks.add(s)
	}
	written := new([]Stock)
	b := &pgx.Batch{}
	if len(writes) > 0 {
		written = pg.Collect(b, pgx.RowToStructByNameLax[Stock], writeSQL, tenantID, stocks.variant, stocks.stock, stocks.tracked, stocks.backorder,
			stocks.ttl, stocks.most, stocks.lane, stocks.admission, stocks.preorders, stocks.sale)
	}
	audit.Queue(b, entries)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("write %d stocks: %w", len(writes), translated(err))
	}
	if len(*written) != len(writes) {
		return fmt.Errorf("write %d stocks: the guard refused %d: %w", len(writes), len(writes)-len(*written), ErrBelowReserved)
	}
	now := byID(*written)
	for i := range results {
		if w, ok := now[results[i].stock.VariantID]; ok {
			results[i].stock.UpdatedAt = w.UpdatedAt
		}
	}
	return nil
}

// translated returns ErrBelowReserved for a violated CHECK. The checks before
// the write make it unreachable; the CHECK is the last guard.
func translated(err error) error {
	if pg.Constraint(err) == "inventory_stocks_no_oversell" {
		return fmt.Errorf("%w: %w", ErrBelowReserved, err)
	}
	return err
}

// columns are stocks as one array per column.
type columns struct {
	variant            []string
	stock              []int64
	tracked, backorder []bool
	ttl, most          []*int32
	lane, admission    []string
	preorders          []*int64
	sale               []*string
}

func (c *columns) add(s Stock) {
	c.variant, c.stock = append(c.variant, s.VariantID), append(c.stock, s.Stock)
	c.tracked, c.backorder = append(c.tracked, s.Tracked), append(c.backorder, s.Backorder)
	c.ttl, c.most = append(c.ttl, s.HoldTTLSeconds), append(c.most, s.MaxPerCart)
	c.lane, c.admission = append(c.lane, string(s.Lane)), append(c.admission, s.Admission)
	c.preorders, c.sale = append(c.preorders, s.PreorderMax), append(c.sale, s.Sale.encode())
}

func (c *columns) set(i int, s Stock) {
	c.stock[i], c.tracked[i], c.backorder[i] = s.Stock, s.Tracked, s.Backorder
	c.ttl[i], c.most[i], c.lane[i], c.admission[i] = s.HoldTTLSeconds, s.MaxPerCart, string(s.Lane), s.Admission
	c.preorders[i], c.sale[i] = s.PreorderMax, s.Sale.encode()
}
