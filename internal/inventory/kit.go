package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// KitPartsMax is how many parts a kit has at most.
const KitPartsMax = 20

var (
	// ErrUnknownKit means that the tenant has no such kit.
	ErrUnknownKit = errors.New("unknown kit")
	// ErrPartOfKit means that units cannot leave a cart alone, because they are
	// a part of a kit.
	ErrPartOfKit = errors.New("the units are a part of a kit")
)

// KitPart is a part of a kit: units of a variant.
type KitPart struct {
	VariantID string `json:"variant_id"`
	// Quantity is how many units one kit has, 1 to MaxQuantity.
	Quantity int32 `json:"quantity"`
}

// Kit is a list of parts that is sold as one. It has no stock of its own.
type Kit struct {
	TenantID uuid.UUID
	KitID    string
	// Parts are 1 to KitPartsMax different variants.
	Parts []KitPart
	// Available is how many whole kits a new request can hold, by what is
	// available of each part; nil if all parts are digital or allow backorder
	// without a limit.
	Available *int64 `db:"-"`
	CreatedAt time.Time
	UpdatedAt time.Time
}

// KitPage is one page of a tenant's kits.
type KitPage struct {
	Items []Kit
	// NextCursor is the cursor of the next page; empty on the last page.
	NextCursor string
}

// validateParts checks everything but the variants' existence.
func validateParts(parts []KitPart) error {
	if len(parts) == 0 || len(parts) > KitPartsMax {
		return &InvalidError{Field: "parts", Message: fmt.Sprintf("must have 1 to %d items", KitPartsMax)}
	}
	for i, p := range parts {
		field := fmt.Sprintf("parts[%d].variant_id", i)
		if err := ValidateID(field, p.VariantID); err != nil {
			return err
		}
		if slices.ContainsFunc(parts[:i], func(other KitPart) bool { return other.VariantID == p.VariantID }) {
			return &InvalidError{Field: field, Message: "is the variant of another part"}
		}
		if p.Quantity < 1 || p.Quantity > MaxQuantity {
			return &InvalidError{Field: fmt.Sprintf("parts[%d].quantity", i), Message: fmt.Sprintf("must be between 1 and %d", MaxQuantity)}
		}
	}
	return nil
}

// makeKitSQL makes a missing kit or locks the existing one, in one statement as
// openSQL does.
const makeKitSQL = `
INSERT INTO kits AS k (tenant_id, kit_id, parts)
VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, kit_id) DO UPDATE
SET updated_at = k.updated_at
WHERE false
RETURNING k.tenant_id, k.kit_id, k.parts, k.created_at, k.updated_at`

const selectKits = `
SELECT k.tenant_id, k.kit_id, k.parts, k.created_at, k.updated_at
FROM kits AS k
`

// NoKitPart is the variant of the only part of a kit that is unknown. No variant
// has this id.
const NoKitPart = "//"

const getKitsSQL = selectKits + `WHERE k.tenant_id = $1 AND k.kit_id = ANY ($2::text[])`

const changeKitSQL = `
UPDATE kits AS k
SET parts = $3, updated_at = clock_timestamp()
WHERE k.tenant_id = $1 AND k.kit_id = $2
RETURNING k.tenant_id, k.kit_id, k.parts, k.created_at, k.updated_at`

func toKit(row pgx.CollectableRow) (Kit, error) { return pgx.RowToStructByName[Kit](row) }

// SetKitTx makes a kit or replaces its parts, and returns the kit after that. A
// change writes one audit row with action "kit.set"; the same parts again write
// nothing. Requests that were accepted before keep the parts that they have.
//
// Errors: [*InvalidError] for the id and for parts that are not 1 to
// KitPartsMax different variants of the tenant, counted or digital.
//
// It locks the kit. The transaction must be READ COMMITTED: an older snapshot
// would miss a change of the kit that it waited for.
func SetKitTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, kitID string, parts []KitPart, origin audit.Origin) (kit Kit, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.set_kit")
	defer func() { done(outcome(err)) }()
	if err := errors.Join(ValidateID("kit_id", kitID), validateParts(parts)); err != nil {
		return Kit{}, err
	}
	stocks, err := GetAll(ctx, tx, tenantID, variantsOfParts(parts))
	if err != nil {
		return Kit{}, err
	}
	for i, p := range parts {
		if stock, known := stocks[p.VariantID]; !known || stock.NamedUnits {
			return Kit{}, &InvalidError{Field: fmt.Sprintf("parts[%d].variant_id", i), Message: "must be a counted or digital variant"}
		}
	}
	text := encodeParts(parts)
	b := &pgx.Batch{}
	made := pg.Collect(b, toKit, makeKitSQL, tenantID, kitID, text)
	found := pg.Collect(b, toKit, getKitsSQL, tenantID, []string{kitID})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return Kit{}, fmt.Errorf("set kit %s: %w", kitID, err)
	}
	var before *Kit
	switch {
	case len(*made) > 0:
		kit = (*made)[0]
	case slices.Equal((*found)[0].Parts, parts):
		kit = (*found)[0]
		kit.Available = availableKits(kit.Parts, stocks)
		return kit, nil
	default:
		before = &(*found)[0]
		kit, err = pg.SelectOne(ctx, tx, toKit, changeKitSQL, tenantID, kitID, text)
		if err != nil {
			return Kit{}, fmt.Errorf("set kit %s: %w", kitID, err)
		}
	}
	kit.Available = availableKits(kit.Parts, stocks)
	return kit, recordKitTx(ctx, tx, "kit.set", before, kit, origin)
}

const deleteKitSQL = `
DELETE FROM kits AS k
WHERE k.tenant_id = $1 AND k.kit_id = $2
RETURNING k.tenant_id, k.kit_id, k.parts, k.created_at, k.updated_at`

// DeleteKitTx deletes a kit, and writes one audit row with action "kit.deleted".
// What is held of it stays held. It is correct at every isolation level.
//
// Errors: [ErrUnknownKit].
func DeleteKitTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, kitID string, origin audit.Origin) (err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.delete_kit")
	defer func() { done(outcome(err)) }()
	kit, err := pg.SelectOne(ctx, tx, toKit, deleteKitSQL, tenantID, kitID)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrUnknownKit
	}
	if err != nil {
		return fmt.Errorf("delete kit %s: %w", kitID, err)
	}
	return recordKitTx(ctx, tx, "kit.deleted", &kit, Kit{TenantID: tenantID, KitID: kitID}, origin)
}

// recordKitTx writes the audit row of a change. A deleted kit has no parts.
func recordKitTx(ctx context.Context, tx pgx.Tx, action string, before *Kit, after Kit, origin audit.Origin) error {
	e := audit.Entry{
		TenantID: after.TenantID, TargetID: audit.TargetOf(after.TenantID, "kit", after.KitID), Action: action, Origin: origin,
		After: after.encode(),
	}
	if before != nil {
		e.Before = before.encode()
	}
	b := &pgx.Batch{}
	audit.Queue(b, []audit.Entry{e})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("record kit %s: %w", after.KitID, err)
	}
	return nil
}

// encode is the kit as the audit log keeps it.
func (k *Kit) encode() json.RawMessage {
	id, err := json.Marshal(k.KitID)
	if err != nil { // a string always marshals
		panic(err)
	}
	return fmt.Appendf(nil, `{"kit_id":%s,"parts":%s}`, id, encodeParts(k.Parts))
}

func encodeParts(parts []KitPart) json.RawMessage {
	b, err := json.Marshal(append([]KitPart{}, parts...))
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	return b
}

// GetKits returns those of the kits that exist, by their ids, without Available.
func GetKits(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kitIDs []string) (map[string]Kit, error) {
	found, err := pg.Select(ctx, db, toKit, getKitsSQL, tenantID, kitIDs)
	if err != nil {
		return nil, fmt.Errorf("get %d kits: %w", len(kitIDs), err)
	}
	kits := make(map[string]Kit, len(found))
	for _, k := range found {
		kits[k.KitID] = k
	}
	return kits, nil
}

// GetKit returns one kit with Available.
//
// Errors: [ErrUnknownKit]; [*InvalidError] for an invalid id.
func GetKit(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kitID string) (Kit, error) {
	if err := ValidateID("kit_id", kitID); err != nil {
		return Kit{}, err
	}
	found, err := GetKits(ctx, db, tenantID, []string{kitID})
	if err != nil {
		return Kit{}, err
	}
	kit, known := found[kitID]
	if !known {
		return Kit{}, fmt.Errorf("get kit %s: %w", kitID, ErrUnknownKit)
	}
	kits, err := withAvailable(ctx, db, tenantID, []Kit{kit})
	if err != nil {
		return Kit{}, err
	}
	return kits[0], nil
}

const listKitsSQL = selectKits + `
WHERE k.tenant_id = $1 AND k.kit_id > $2
ORDER BY k.kit_id
LIMIT $3`

// ListKits returns a page of a tenant's kits in the order of their ids, as
// [List] does of its stocks.
//
// Errors: [*InvalidError] for a bad limit or cursor.
func ListKits(ctx context.Context, db audit.Querier, tenantID uuid.UUID, limit int, cursor string) (KitPage, error) {
	limit, after, err := pageBounds(limit, cursor)
	if err != nil {
		return KitPage{}, err
	}
	items, err := pg.Select(ctx, db, toKit, listKitsSQL, tenantID, after, limit+1)
	if err != nil {
		return KitPage{}, fmt.Errorf("list kits: %w", err)
	}
	items, next := cutPage(items, limit, func(k *Kit) string { return k.KitID })
	items, err = withAvailable(ctx, db, tenantID, items)
	return KitPage{Items: items, NextCursor: next}, err
}

// withAvailable sets Available of the kits.
func withAvailable(ctx context.Context, db audit.Querier, tenantID uuid.UUID, kits []Kit) ([]Kit, error) {
	var variants []string
	for i := range kits {
		variants = append(variants, variantsOfParts(kits[i].Parts)...)
	}
	slices.Sort(variants)
	variants = slices.Compact(variants)
	if len(variants) == 0 {
		return kits, nil
	}
	stocks, err := GetAll(ctx, db, tenantID, variants)
	for i := range kits {
		kits[i].Available = availableKits(kits[i].Parts, stocks)
	}
	return kits, err
}

// availableKits returns how many whole kits the stocks allow, nil for any number.
// Of a part that does not exist there is none.
func availableKits(parts []KitPart, stocks map[string]Stock) (available *int64) {
	for _, p := range parts {
		stock, known := stocks[p.VariantID]
		if known && (!stock.Tracked || stock.Backorder && stock.PreorderMax == nil) {
			continue
		}
		if n := max(stock.Available, 0) / int64(p.Quantity); available == nil || n < *available {
			available = &n
		}
	}
	return available
}

func variantsOfParts(parts []KitPart) []string {
	ids := make([]string, len(parts))
	for i := range parts {
		ids[i] = parts[i].VariantID
	}
	return ids
}
