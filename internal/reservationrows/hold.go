package reservationrows

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/unnest"
)

// Hold is a reservation to be made. Held rows are seen by others when the transaction commits.
type Hold struct {
	Reservation
	Origin audit.Origin
	// Replaces are held reservations, or holds before this one in the same set, that end as it is made: released, reason
	// replaced, at its HeldAt, by its Origin. Holds of one set that replace something have one HeldAt.
	Replaces []Reservation
}

// holdSQL takes a column that is the same for all once; reservation_id never is.
const holdSQL = `
INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, resource_window, holder_id,
                          quantity, first_held_at, held_at, expires_at)
SELECT coalesce(h.tenant_id, ($1::uuid[])[1]), h.reservation_id, coalesce(h.resource_kind, ($3::text[])[1]),
       coalesce(h.resource_key, ($4::text[])[1]), nullif(coalesce(h.resource_window, ($5::text[])[1]), ''),
       coalesce(h.holder_id, ($6::text[])[1]), coalesce(h.quantity, ($7::bigint[])[1]),
       coalesce(h.first_held_at, ($8::timestamptz[])[1]), coalesce(h.held_at, ($9::timestamptz[])[1]),
       coalesce(h.expires_at, ($10::timestamptz[])[1])
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
            $8::timestamptz[], $9::timestamptz[], $10::timestamptz[])
     AS h (tenant_id, reservation_id, resource_kind, resource_key, resource_window, holder_id,
           quantity, first_held_at, held_at, expires_at)`

// QueueHolds adds to b what makes the holds and ends what they replace, and their audit rows (reservation.held,
// reservation.released): in the order of the holds, and what a hold replaces before the hold, so that a reader of the
// record never counts the units of both. The caller has locked every resource's row, counted the units against its
// capacity, and locked what is replaced. An id that exists already fails the batch; so does, with ErrShifted, a
// reservation to be replaced that is not held after all.
func QueueHolds(b *pgx.Batch, holds []Hold) {
	n := len(holds)
	if n == 0 {
		return
	}
	ids := make([][16]byte, 2*n)
	texts := make([]string, 4*n)
	quantities := make([]int64, n)
	times := make([]time.Time, 3*n)
	entries := make([]audit.Entry, 0, n)
	replacing := Ending{To: Released, Reason: Replaced}
	var replaced []Ref
	for i := range holds {
		h := &holds[i]
		h.Status = Held
		ids[i], ids[n+i] = h.TenantID, h.ReservationID
		texts[i], texts[n+i], texts[2*n+i], texts[3*n+i] = h.ResourceKind, h.ResourceKey, h.ResourceWindow, h.HolderID
		quantities[i] = h.Quantity
		times[i], times[n+i], times[2*n+i] = h.FirstHeldAt, h.HeldAt, h.ExpiresAt
		for j := range h.Replaces {
			replacing.At, replacing.Origin = h.HeldAt, h.Origin
			replaced = append(replaced, h.Replaces[j].Ref())
			entries = append(entries, replacing.Apply(&h.Replaces[j]))
		}
		entries = append(entries, audit.Entry{
			TenantID: h.TenantID, TargetID: h.ReservationID, Action: EventHeld, Origin: h.Origin, After: h.state(),
		})
	}
	b.Queue(holdSQL, unnest.Once(ids[:n]), ids[n:], unnest.Once(texts[:n]), unnest.Once(texts[n:2*n]), unnest.Once(texts[2*n:3*n]),
		unnest.Once(texts[3*n:]), unnest.Once(quantities), unnest.Once(times[:n]), unnest.Once(times[n:2*n]), unnest.Once(times[2*n:]))
	replacing.QueueRows(b, replaced)
	audit.Queue(b, entries)
}

// HoldTx makes the holds in tx; see QueueHolds.
func HoldTx(ctx context.Context, tx pgx.Tx, holds []Hold) error {
	b := &pgx.Batch{}
	QueueHolds(b, holds)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("hold %d reservations: %w", len(holds), err)
	}
	return nil
}
