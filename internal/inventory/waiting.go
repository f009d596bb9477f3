package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
)

// The waiting list of a variant has the requests that came up short and wait for
// units. No other request takes a unit meanwhile: it finds nothing free. The first
// in line that fits what is free is offered it.

// free is how many units the request could have, if it gives back none. Those
// that requests wait for in line are free to them only.
func (d *decision) free(request *HoldRequest, c *counter, in *inputs) int64 {
	ref := Ref{c.TenantID, c.VariantID}
	free := c.capacity() - c.Reserved + in.due[ref] - d.reserved[ref].net
	if !request.Offered && (in.line[ref] || d.joined[ref]) {
		return min(free, 0)
	}
	return free
}

// unserved returns the outcome of a request that comes up short: it waits, if it
// may, or has the other outcome.
func (d *decision) unserved(request *HoldRequest, ref Ref, other Outcome) Outcome {
	if other != OutOfStock || !request.Wait && !request.Offered {
		return other
	}
	d.joined[ref] = d.joined[ref] || request.Wait
	return Waiting
}

const lineSQL = `
SELECT wanted.tenant_id, wanted.variant_id
FROM unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id)
WHERE EXISTS (SELECT FROM waiting_requests w WHERE w.tenant_id = wanted.tenant_id AND w.variant_id = wanted.variant_id)`

// readLineTx reads for which variants requests wait in line. Under the locks of
// their stocks none is added.
func (in *inputs) readLineTx(ctx context.Context, tx pgx.Tx) error {
	var marked []Ref
	for ref, c := range in.counters {
		if c.Waiting {
			marked = append(marked, ref)
		}
	}
	if len(marked) == 0 {
		return nil
	}
	tenants, variants := splitRefs(marked)
	lines, err := pg.Select(ctx, tx, pgx.RowToStructByPos[Ref], lineSQL, tenants, variants)
	if err != nil {
		return fmt.Errorf("read who waits for %d variants: %w", len(marked), err)
	}
	in.line = make(map[Ref]bool, len(lines))
	for _, ref := range lines {
		in.line[ref] = true
	}
	for _, ref := range marked {
		if !in.line[ref] {
			in.unmarked = append(in.unmarked, ref)
		}
	}
	return nil
}

const (
	joinLineSQL = `
INSERT INTO waiting_requests (tenant_id, variant_id, place, request_id, quantity)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::uuid[], $5::integer[])
ON CONFLICT DO NOTHING -- after an isolated retry`

	markLineSQL = `
UPDATE inventory_stocks s
SET waiting = true
FROM unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id)
WHERE s.tenant_id = wanted.tenant_id AND s.variant_id = wanted.variant_id AND NOT s.waiting`

	leaveLineSQL = `
DELETE FROM waiting_requests w
USING unnest($1::uuid[], $2::text[], $3::bigint[]) AS finished (tenant_id, variant_id, place)
WHERE w.tenant_id = finished.tenant_id AND w.variant_id = finished.variant_id AND w.place = finished.place`

	unmarkLineSQL = `
UPDATE inventory_stocks s
SET waiting = false
WHERE s.tenant_id = $1 AND s.variant_id = $2 AND s.waiting
  AND NOT EXISTS (SELECT FROM waiting_requests w WHERE w.tenant_id = $1 AND w.variant_id = $2)`
)

// InLine is a request of a waiting list.
type InLine struct {
	Ref
	Place     int64
	RequestID uuid.UUID
	Quantity  int32
}

// QueueJoinLine adds to b what adds requests to the waiting lists of their
// variants, whose stocks the transaction has locked.
func QueueJoinLine(b *pgx.Batch, joining []InLine) {
	if len(joining) == 0 {
		return
	}
	tenants, variants, places := columnsOfLine(joining)
	ids, quantities := make([][16]byte, len(joining)), make([]int32, len(joining))
	for i := range joining {
		ids[i], quantities[i] = joining[i].RequestID, joining[i].Quantity
	}
	b.Queue(joinLineSQL, tenants, variants, places, ids, quantities)
	b.Queue(markLineSQL, tenants, variants)
}

// QueueLeaveLine adds to b what takes requests out of the waiting lists, whose
// rows of the status table the transaction has locked.
func QueueLeaveLine(b *pgx.Batch, leaving []InLine) {
	if len(leaving) > 0 {
		tenants, variants, places := columnsOfLine(leaving)
		b.Queue(leaveLineSQL, tenants, variants, places)
	}
}

// QueueUnmarkLine adds to b what notes that no request waits for the variant any
// more, if that is so. The transaction has locked its stock.
func QueueUnmarkLine(b *pgx.Batch, variant Ref) {
	b.Queue(unmarkLineSQL, variant.TenantID, variant.VariantID)
}

func columnsOfLine(requests []InLine) (tenants [][16]byte, variants []string, places []int64) {
	for i := range requests {
		r := &requests[i]
		tenants, variants, places = append(tenants, r.TenantID), append(variants, r.VariantID), append(places, r.Place)
	}
	return tenants, variants, places
}

// offerable is how many units can be offered to those that wait for variants
// line, by what is free and what is due. Of a variant without a limit, or that
// is unknown, all that is asked for.
const offerable = `
    SELECT CASE WHEN s.variant_id IS NULL OR NOT s.tracked OR s.backorder AND s.preorder_max IS NULL THEN ` + maxQuantityText + `
                ELSE greatest(0, least(s.stock + coalesce(s.preorder_max, 0) - s.reserved + due.units, ` + maxQuantityText + `)) END::integer AS units
    FROM (VALUES (1)) AS one
    LEFT JOIN inventory_stocks s ON s.tenant_id = line.tenant_id AND s.variant_id = line.variant_id
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(r.quantity), 0) AS units
        FROM (SELECT r.quantity
              FROM reservations r
              WHERE r.tenant_id = line.tenant_id AND r.resource_key = line.variant_id AND r.resource_kind = '` + Kind + `' AND r.quantity > 0
                AND r.expires_at BETWEEN s.due_from AND (SELECT clock_timestamp()) AND r.status = 'held'
                AND NOT ` + dueOfAllotment + `
              ORDER BY r.expires_at
              LIMIT 1000) r
    ) AS due`

// maxQuantityText is MaxQuantity.
const maxQuantityText = `1000000`

// offerableSQL returns the variants whose waiting list has a request that fits
// what is free, and how many lists there are. Each list is found behind the one
// before it, whatever its length.
const offerableSQL = `
WITH RECURSIVE line AS (
    (SELECT w.tenant_id, w.variant_id FROM waiting_requests w ORDER BY w.tenant_id, w.variant_id LIMIT 1)
    UNION ALL
    SELECT next.tenant_id, next.variant_id
    FROM line
    CROSS JOIN LATERAL (
        SELECT w.tenant_id, w.variant_id
        FROM waiting_requests w
        WHERE (w.tenant_id, w.variant_id) > (line.tenant_id, line.variant_id)
        ORDER BY w.tenant_id, w.variant_id
        LIMIT 1
    ) AS next
)
SELECT line.tenant_id, line.variant_id, least.quantity <= free.units AS fits
FROM line
CROSS JOIN LATERAL (` + offerable + `) AS free
CROSS JOIN LATERAL (
    SELECT w.quantity
    FROM waiting_requests w
    WHERE w.tenant_id = line.tenant_id AND w.variant_id = line.variant_id
    ORDER BY w.quantity
    LIMIT 1
) AS least`

// Offerable returns the variants that have units for a request of their waiting
// list, and how many variants have a list.
func Offerable(ctx context.Context, db audit.Querier) (variants []Ref, lines int, err error) {
	type line struct {
		Ref
		Fits bool
	}
	found, err := pg.Select(ctx, db, pgx.RowToStructByPos[line], offerableSQL)
	if err != nil {
		return nil, 0, fmt.Errorf("read the waiting lists: %w", err)
	}
	for _, l := range found {
		if l.Fits {
			variants = append(variants, l.Ref)
		}
	}
	return variants, len(found), nil
}

// FittingSQL is a SQL query of the request ids of up to $3 requests of the
// variant $1, $2 that wait in line and each fit what is free, the first in line
// first; no more than there are units. It looks for the first of each quantity,
// so a long list of requests that do not fit costs nothing. Of more than 100
// quantities, it looks for the least.
const FittingSQL = `
WITH RECURSIVE free AS MATERIALIZED (
    SELECT free.units
    FROM (SELECT $1::uuid AS tenant_id, $2::text AS variant_id) AS line
    CROSS JOIN LATERAL (` + offerable + `) AS free
), sizes AS (
    (SELECT w.quantity, 1 AS n
     FROM waiting_requests w
     WHERE w.tenant_id = $1 AND w.variant_id = $2 AND w.quantity <= (SELECT units FROM free)
     ORDER BY w.quantity
     LIMIT 1)
    UNION ALL
    SELECT next.quantity, sizes.n + 1
    FROM sizes
    CROSS JOIN LATERAL (
        SELECT w.quantity
        FROM waiting_requests w
        WHERE w.tenant_id = $1 AND w.variant_id = $2 AND w.quantity > sizes.quantity AND w.quantity <= (SELECT units FROM free)
        ORDER BY w.quantity
        LIMIT 1
    ) AS next
    WHERE sizes.n < 100
)
SELECT first.request_id
FROM sizes
CROSS JOIN LATERAL (
    SELECT w.request_id, w.place
    FROM waiting_requests w
    WHERE w.tenant_id = $1 AND w.variant_id = $2 AND w.quantity = sizes.quantity
    ORDER BY w.place
    LIMIT least($3, (SELECT units FROM free))
) AS first
ORDER BY first.place
LIMIT least($3, (SELECT units FROM free))`

const hasPlaceSQL = `SELECT EXISTS (SELECT FROM waiting_requests w WHERE w.tenant_id = $1 AND w.variant_id = $2 AND w.place = $3)`

// HasPlace reports whether the request has a place in line.
func HasPlace(ctx context.Context, db audit.Querier, r InLine) (bool, error) {
	has, err := pg.SelectOne(ctx, db, pgx.RowTo[bool], hasPlaceSQL, r.TenantID, r.VariantID, r.Place)
	if err != nil {
		return false, fmt.Errorf("read the place of request %s: %w", r.RequestID, err)
	}
	return has, nil
}

// LinePlaceMax is the highest place in a line that is reported. It means that
// many or more.
const LinePlaceMax = 10_000

const placesSQL = `
SELECT asked.n - 1, place.n
FROM (SELECT DISTINCT tenant_id, variant_id FROM unnest($1::uuid[], $2::text[]) AS v (tenant_id, variant_id)) AS v
CROSS JOIN LATERAL (
    SELECT first.place, row_number() OVER (ORDER BY first.place) AS n
    FROM (SELECT w.place
          FROM waiting_requests w
          WHERE w.tenant_id = v.tenant_id AND w.variant_id = v.variant_id
          ORDER BY w.place
          LIMIT $4) AS first
) AS place
JOIN unnest($1::uuid[], $2::text[], $3::bigint[]) WITH ORDINALITY AS asked (tenant_id, variant_id, place, n)
    ON asked.tenant_id = v.tenant_id AND asked.variant_id = v.variant_id AND asked.place = place.place`

// LinePlaces returns where the requests are in the line for their variant, from
// 1, at most LinePlaceMax. It reads each line once.
func LinePlaces(ctx context.Context, db audit.Querier, waiting []InLine) ([]int64, error) {
	tenants, variants, places := columnsOfLine(waiting)
	type place struct{ Index, N int64 }
	found, err := pg.Select(ctx, db, pgx.RowToStructByPos[place], placesSQL, tenants, variants, places, LinePlaceMax)
	if err != nil {
		return nil, fmt.Errorf("read the places of %d requests in line: %w", len(waiting), err)
	}
	positions := make([]int64, len(waiting))
	for i := range positions {
		positions[i] = LinePlaceMax
	}
	for _, f := range found {
		positions[f.Index] = f.N
	}
	return positions, nil
}

// KeptBack is what of a variant is kept from other requests.
type KeptBack struct {
	VariantID string
	// InLine is how many requests wait in line, at most InLineMax, and SetAside how
	// many units are left in allotments.
	InLine, SetAside int64
}

// InLineMax is the highest number of requests in line that GetKeptBack counts.
const InLineMax = 1000

const keptBackSQL = `
SELECT v.variant_id, line.requests, aside.units
FROM unnest($2::text[]) AS v (variant_id)
CROSS JOIN LATERAL (
    SELECT count(*) AS requests
    FROM (SELECT FROM waiting_requests w WHERE w.tenant_id = $1 AND w.variant_id = v.variant_id LIMIT $3) AS first
) AS line
CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.quantity), 0)::bigint AS units
    FROM allotments a
    JOIN reservations r ON r.tenant_id = a.tenant_id AND r.reservation_id = a.reservation_id
    WHERE a.tenant_id = $1 AND a.variant_id = v.variant_id AND a.expires_at > (SELECT clock_timestamp()) AND r.status = 'held'
) AS aside
WHERE line.requests > 0 OR aside.units > 0`

// GetKeptBack returns what is kept back of those variants of which something is.
func GetKeptBack(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantIDs []string) (map[string]KeptBack, error) {
	found, err := pg.Select(ctx, db, pgx.RowToStructByPos[KeptBack], keptBackSQL, tenantID, variantIDs, InLineMax)
	if err != nil {
		return nil, fmt.Errorf("read what is kept back of %d variants: %w", len(variantIDs), err)
	}
	all := make(map[string]KeptBack, len(found))
	for _, k := range found {
		all[k.VariantID] = k
	}
	return all, nil
}
