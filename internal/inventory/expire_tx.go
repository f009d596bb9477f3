package inventory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// ExpireDueTx is ExpireDue in the caller's single transaction. If one variant
// fails, the whole call fails. It is correct at every isolation level.
//
// It reads which variants it needs, locks their stocks in order, waiting for
// each, then locks the reservations that no other transaction has locked, and
// checks them again.
func ExpireDueTx(ctx context.Context, tx pgx.Tx, limit int) (Sweep, error) {
	due, err := readDue(ctx, tx, reservationrows.DueQuery{Kind: Kind}, limit)
	if err != nil {
		return Sweep{}, err
	}
	if _, err := lockTx(ctx, tx, lockSQL, due.variants); err != nil {
		return Sweep{}, fmt.Errorf("expire due holds: %w", err)
	}
	var held []reservations.Reservation
	for _, variant := range due.variants {
		held = append(held, due.holds[variant]...)
	}
	s, err := expireTx(ctx, tx, held)
	s.Found = due.found
	return s, err
}

// ExpireVariant ends up to limit holds of one variant that are past their
// deadline, the longest due first, and returns how many. It locks the variant's
// stock, then the holds. It leaves holds that other transactions have locked.
func ExpireVariant(ctx context.Context, db *pgxpool.Pool, variant Ref, limit int) (expired int, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		s, err := lockTx(ctx, tx, lockSQL, []Ref{variant})
		if err != nil {
			return err
		}
		for _, of := range []reservationrows.DueOfKeys{dueHoldsOf, dueOfAllotments} {
			ended, err := endDueOfTx(ctx, tx, of, variant, s.now, limit)
			if err != nil {
				return err
			}
			expired += len(ended)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("expire due holds of variant %s: %w", variant.VariantID, err)
	}
	return expired, nil
}

// endDueOfTx ends up to limit due holds of a variant, whose stock is locked, and
// returns them. It leaves those that other transactions have locked.
func endDueOfTx(ctx context.Context, tx pgx.Tx, of reservationrows.DueOfKeys, variant Ref, now time.Time, limit int) ([]reservations.Reservation, error) {
	b := &pgx.Batch{}
	due := of.QueueLock(b, []reservationrows.DueLimit{dueLimit(variant, limit)}, now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("lock due holds of variant %s: %w", variant.VariantID, err)
	}
	return *due, endTx(ctx, tx, *due, expiry(now))
}

// expireTx ends those of the holds that are still due and that no other
// transaction has locked; their stocks are locked. To wait for a hold would keep
// the requests for its variant waiting.
func expireTx(ctx context.Context, tx pgx.Tx, due []reservations.Reservation) (Sweep, error) {
	refs := make([]reservationrows.Ref, len(due))
	for i := range due {
		refs[i] = due[i].Ref()
	}
	locked, now, err := reservationrows.TryLockTx(ctx, tx, refs)
	if err != nil {
		return Sweep{}, fmt.Errorf("expire due holds: %w", err)
	}
	still := slices.DeleteFunc(locked, func(r reservations.Reservation) bool { return !r.Due(now) })
	return Sweep{Expired: len(still), ScannedAt: now}, endTx(ctx, tx, still, expiry(now))
}
