package inventory

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/pg"
)

// DueMax is how many due holds of a variant a read of its stock counts at most,
// so that a read costs the same however many holds are due.
const DueMax = 200

// selectStocks begins every read of stocks. The sub-select makes the clock one
// value for the statement, so that an index can bound the sum to what is due.
// The order is that of the index, so that the limit, DueMax, ends the read.
const selectStocks = `
SELECT
    s.tenant_id,
    s.variant_id,
    s.stock,
    s.reserved,
    s.stock + coalesce(s.preorder_max, 0) - s.reserved + due.quantity AS available,
    s.tracked,
    s.backorder,
    s.hold_ttl_seconds,
    s.max_per_cart,
    s.named_units,
    s.lane,
    s.admission,
    s.preorder_max,
    s.sale,
    s.created_at,
    s.updated_at
FROM inventory_stocks AS s
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(longest.quantity), 0)::bigint AS quantity
    FROM (
        SELECT r.quantity
        FROM reservations AS r
        WHERE r.tenant_id = s.tenant_id
          AND r.resource_kind = '` + Kind + `'
          AND r.resource_key = s.variant_id
          AND r.quantity > 0
          AND r.status = 'held'
          AND NOT ` + dueOfAllotment + `
          AND r.expires_at >= s.due_from
          AND r.expires_at <= (SELECT clock_timestamp())
        ORDER BY r.expires_at
        LIMIT 200
    ) AS longest
) AS due
`

// toStock reads a row of selectStocks.
func toStock(row pgx.CollectableRow) (Stock, error) { return pgx.RowToStructByName[Stock](row) }

const getSQL = selectStocks + `WHERE s.tenant_id = $1 AND s.variant_id = $2`

// Get returns one stock of the newest committed state or, if db is a
// transaction, of the state that it sees.
//
// Errors: [ErrUnknownVariant] for a variant that this tenant does not have,
// even if another tenant has it; [*InvalidError] for an invalid id.
func Get(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantID string) (Stock, error) {
	if err := ValidateID("variant_id", variantID); err != nil {
		return Stock{}, err
	}
	stock, err := pg.SelectOne(ctx, db, toStock, getSQL, tenantID, variantID)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrUnknownVariant
	}
	if err != nil {
		return Stock{}, fmt.Errorf("get stock %s: %w", variantID, err)
	}
	return stock, nil
}

// GetAll returns those of the stocks that exist, by their ids.
func GetAll(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantIDs []string) (map[string]Stock, error) {
	found, err := pg.Select(ctx, db, toStock, readSQL, tenantID, variantIDs)
	if err != nil {
		return nil, fmt.Errorf("get %d stocks: %w", len(variantIDs), err)
	}
	return byID(found), nil
}

// SomeMax is how many stocks [GetSome] reads at most.
const SomeMax = 200

// GetSome returns those of the stocks that exist, in the order in which they are
// given, each once.
//
// Errors: [*InvalidError] for more than [SomeMax] or an invalid id.
func GetSome(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantIDs []string) ([]Stock, error) {
	if len(variantIDs) > SomeMax {
		return nil, &InvalidError{Field: "variant_id", Message: fmt.Sprintf("must be given at most %d times", SomeMax)}
	}
	for _, id := range variantIDs {
		if err := ValidateID("variant_id", id); err != nil {
			return nil, err
		}
	}
	found, err := GetAll(ctx, db, tenantID, variantIDs)
	if err != nil {
		return nil, err
	}
	stocks := make([]Stock, 0, len(found))
	for _, id := range variantIDs {
		if stock, ok := found[id]; ok {
			stocks = append(stocks, stock)
			delete(found, id)
		}
	}
	return stocks, nil
}

// How many stocks a page has.
const (
	DefaultPage = 100
	MaxPage     = 500
)

// Page is one page of a tenant's stocks.
type Page struct {
	Items []Stock
	// NextCursor is the cursor of the next page; empty on the last page.
	NextCursor string
}

const listSQL = selectStocks + `
WHERE s.tenant_id = $3 AND s.variant_id > $1
ORDER BY s.variant_id
LIMIT $2`

// List returns a page of a tenant's stocks in the order of their ids: limit of
// them (0: [DefaultPage]; at most [MaxPage]), after the cursor of an earlier
// page (empty: from the start). A variant that exists all the time is on
// exactly one page, whatever is added in between.
//
// Errors: [*InvalidError] for a bad limit or cursor.
func List(ctx context.Context, db audit.Querier, tenantID uuid.UUID, limit int, cursor string) (Page, error) {
	return list(ctx, db, limit, cursor, listSQL, tenantID)
}

// list returns a page by a query that takes the id before the page and the number
// of rows, and the further arguments.
func list(ctx context.Context, db audit.Querier, limit int, cursor, sql string, more ...any) (Page, error) {
	limit, after, err := pageBounds(limit, cursor)
	if err != nil {
		return Page{}, err
	}
	// One more row than the page shows whether there is another page.
	items, err := pg.Select(ctx, db, toStock, sql, append([]any{after, limit + 1}, more...)...)
	if err != nil {
		return Page{}, fmt.Errorf("list stocks: %w", err)
	}
	items, next := cutPage(items, limit, func(s *Stock) string { return s.VariantID })
	return Page{Items: items, NextCursor: next}, nil
}

// pageBounds returns the limit and the id of the last item before a page.
func pageBounds(limit int, cursor string) (_ int, after string, err error) {
	if limit == 0 {
		limit = DefaultPage
	}
	if limit < 1 || limit > MaxPage {
		return 0, "", &InvalidError{Field: "limit", Message: fmt.Sprintf("must be between 1 and %d", MaxPage)}
	}
	after, err = decodeCursor(cursor)
	return limit, after, err
}

// cutPage cuts the items to the limit, and returns the cursor of the next page
// if there are more.
func cutPage[T any](items []T, limit int, id func(*T) string) (page []T, next string) {
	if len(items) <= limit {
		return items, ""
	}
	return items[:limit], encodeCursor(id(&items[limit-1]))
}

// cursorVersion allows for another form of cursors without misreading old ones.
const cursorVersion = "1"

func encodeCursor(variantID string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorVersion + variantID))
}

func decodeCursor(cursor string) (variantID string, err error) {
	if cursor == "" {
		return "", nil
	}
	wrong := &InvalidError{Field: "cursor", Message: "must be a next_cursor of an earlier page"}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return "", wrong
	}
	variantID, ok := strings.CutPrefix(string(b), cursorVersion)
	// ValidateID would refuse an older id that is only dots or only slashes.
	if !ok || invalid.Check("cursor", variantID, MaxIDLength) != nil {
		return "", wrong
	}
	return variantID, nil
}

// searchSQL compares bytes, as inventory_stocks_prefix_idx does.
const searchSQL = selectStocks + `
WHERE s.tenant_id = $1 AND s.variant_id COLLATE "C" >= $2 AND s.variant_id COLLATE "C" < $3
ORDER BY s.variant_id COLLATE "C"
LIMIT $4`

// lastCharacter is above every character that an id continues with.
const lastCharacter = "\U0010FFFF"

// Search returns the tenant's stocks whose ids begin with prefix, at most limit
// of them, in the order of the bytes of their ids.
func Search(ctx context.Context, db audit.Querier, tenantID uuid.UUID, prefix string, limit int) ([]Stock, error) {
	found, err := pg.Select(ctx, db, toStock, searchSQL, tenantID, prefix, prefix+lastCharacter, limit)
	if err != nil {
		return nil, fmt.Errorf("search stocks: %w", err)
	}
	return found, nil
}

const requiringTokenSQL = `
SELECT tenant_id, variant_id
FROM inventory_stocks
WHERE admission <> 'open'
LIMIT 1`

// FirstRequiringToken returns a variant, of any tenant, whose admission is not
// AdmissionOpen, or nil if all are open. It reads an index of such variants.
func FirstRequiringToken(ctx context.Context, db audit.Querier) (*Ref, error) {
	found, err := pg.Select(ctx, db, pgx.RowToAddrOfStructByName[Ref], requiringTokenSQL)
	if err != nil {
		return nil, fmt.Errorf("find a variant that requires a token: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return found[0], nil
}
