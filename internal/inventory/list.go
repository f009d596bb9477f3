package inventory

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/invalid"
)

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
WHERE s.tenant_id = $1 AND s.variant_id > $2
ORDER BY s.variant_id
LIMIT $3`

// List returns a page of a tenant's stocks in the order of their ids: limit of
// them (0: [DefaultPage]; at most [MaxPage]), after the cursor of an earlier
// page (empty: from the start). A variant that exists all the time is on
// exactly one page, whatever is added in between.
//
// Errors: [*InvalidError] for a bad limit or cursor.
func List(ctx context.Context, db audit.Querier, tenantID uuid.UUID, limit int, cursor string) (Page, error) {
	if limit == 0 {
		limit = DefaultPage
	}
	if limit < 1 || limit > MaxPage {
		return Page{}, &InvalidError{Field: "limit", Message: fmt.Sprintf("must be between 1 and %d", MaxPage)}
	}
	after, err := decodeCursor(cursor)
	if err != nil {
		return Page{}, err
	}
	// One more row than the page shows whether there is another page.
	rows, err := db.Query(ctx, listSQL, tenantID, after, limit+1)
	if err != nil {
		return Page{}, fmt.Errorf("list stocks: %w", err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByName[Stock])
	if err != nil {
		return Page{}, fmt.Errorf("list stocks: %w", err)
	}
	if len(items) <= limit {
		return Page{Items: items}, nil
	}
	return Page{Items: items[:limit], NextCursor: encodeCursor(items[limit-1].VariantID)}, nil
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
