package requestrows

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/requests"
)

// A page of a cart has at most CartPageMax reservations, CartPageMax unfinished
// requests and FailedMax failed requests.
const (
	CartPageMax = 1000
	FailedMax   = 20
)

const unfinishedSQL = `
SELECT ` + columns + `
FROM reservation_requests r
WHERE same_holder(r.tenant_id, r.cart_id, $1, $2) AND r.sequence > $3 AND r.status IN ('queued', 'processing', 'waiting') AND r.parent_id IS NULL
ORDER BY r.sequence
LIMIT $4`

const failedSQL = `
SELECT ` + columns + `
FROM reservation_requests r
WHERE same_holder(r.tenant_id, r.cart_id, $1, $2) AND r.status = 'failed' AND r.parent_id IS NULL
ORDER BY r.sequence DESC
LIMIT $3`

// ViewCart returns a page of a cart: its reservations and its unfinished
// requests, up to limit of each, and its latest failed requests, so that a
// shop's page can put a quantity back. limit is at most CartPageMax; 0 means
// CartPageMax. cursor is the NextCursor of an earlier page, or empty for the
// first page. An unknown cart is empty.
//
// A reservation that exists throughout is on exactly one page, and so is a
// request that is unfinished throughout. A request that is decided while the
// first page is read is in one of its lists or in both.
//
// Errors: *inventory.InvalidError for a bad limit or cursor.
func ViewCart(ctx context.Context, db Querier, tenantID uuid.UUID, cartID string, limit int, cursor string) (c requests.Cart, err error) {
	if limit == 0 {
		limit = CartPageMax
	}
	if limit < 1 || limit > CartPageMax {
		return c, &inventory.InvalidError{Field: "limit", Message: fmt.Sprintf("must be between 1 and %d", CartPageMax)}
	}
	at, err := parseCartCursor(cursor)
	if err != nil {
		return c, err
	}
	// One more of each than the page has shows whether there is another page.
	c.Unfinished, err = collect(ctx, db, unfinishedSQL, tenantID, cartID, at.sequence, limit+1)
	if err != nil {
		return c, fmt.Errorf("view cart %s: %w", cartID, err)
	}
	c.Failed, err = collect(ctx, db, failedSQL, tenantID, cartID, FailedMax)
	if err != nil {
		return c, fmt.Errorf("view cart %s: %w", cartID, err)
	}
	// Read last: a request that was decided meanwhile may be in both lists, but
	// is in at least one.
	c.Reservations, err = reservationrows.ByHolder(ctx, db, tenantID, inventory.Kind, cartID, at.before, limit+1)
	if err != nil {
		return c, err
	}
	more := len(c.Unfinished) > limit || len(c.Reservations) > limit
	c.Unfinished = c.Unfinished[:min(limit, len(c.Unfinished))]
	c.Reservations = c.Reservations[:min(limit, len(c.Reservations))]
	if more {
		c.NextCursor = at.after(c).String()
	}
	return c, nil
}

// cartCursor is the position at which a page of a cart begins: after an
// unfinished request, by its sequence number (the first is 1), and before a
// reservation.
type cartCursor struct {
	sequence int64
	before   uuid.UUID
}

// after returns the cursor of the page that follows c.
func (at cartCursor) after(c requests.Cart) cartCursor {
	if n := len(c.Unfinished); n > 0 {
		at.sequence = c.Unfinished[n-1].Sequence
	}
	if n := len(c.Reservations); n > 0 {
		at.before = c.Reservations[n-1].ReservationID
	}
	return at
}

// cartCursorVersion lets the form of cursors change without misreading old
// ones.
const cartCursorVersion = "1"

func (at cartCursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(cartCursorVersion + "," + strconv.FormatInt(at.sequence, 10) + "," + at.before.String()))
}

func parseCartCursor(cursor string) (cartCursor, error) {
	at := cartCursor{before: uuid.Max}
	if cursor == "" {
		return at, nil
	}
	invalid := &inventory.InvalidError{Field: "cursor", Message: "must be a next_cursor of an earlier page"}
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return at, invalid
	}
	parts := strings.Split(string(text), ",")
	if len(parts) != 3 || parts[0] != cartCursorVersion {
		return at, invalid
	}
	at.sequence, err = strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return at, invalid
	}
	at.before, err = uuid.Parse(parts[2])
	if err != nil || at.String() != cursor {
		return at, invalid
	}
	return at, nil
}
