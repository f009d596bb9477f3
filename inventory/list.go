package inventory

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// How many stocks a page holds.
const (
	DefaultPage = 100
	MaxPage     = 500
)

// Page is one stretch of a tenant's stocks.
type Page struct {
	Items []Stock
	// NextCursor asks for the page after this one; empty on the last.
	NextCursor string
}

const listSQL = selectStocks + `
WHERE s.tenant_id = $1 AND s.variant_id > $2
ORDER BY s.variant_id
LIMIT $3`

// List returns a tenant's stocks in the order of their ids, limit of them (0: [DefaultPage]; at most [MaxPage]), after
// the cursor of an earlier page (empty: from the start). A variant that exists throughout is on exactly one page,
// whatever is added in between. The error for a bad limit or cursor is an [*InvalidError].
func List(ctx context.Context, db queryer, tenantID uuid.UUID, limit int, cursor string) (Page, error) {
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
	// One more than the page tells whether there is another.
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

// cursorVersion lets the form of cursors change without misreading old ones.
const cursorVersion = "1"

func encodeCursor(variantID string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorVersion + variantID))
}

func decodeCursor(cursor string) (variantID string, err error) {
	if cursor == "" {
		return "", nil
	}
	invalid := &InvalidError{Field: "cursor", Message: "must be a next_cursor of an earlier page"}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return "", invalid
	}
	variantID, ok := strings.CutPrefix(string(b), cursorVersion)
	if !ok || ValidateID("cursor", variantID) != nil {
		return "", invalid
	}
	return variantID, nil
}
