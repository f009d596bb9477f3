package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/reservations"
)

// ExpireDue ends up to limit holds that are past their deadline, the longest due first, and gives their units back. It
// returns how many it found due and how many of those it expired: another sweep may have been faster. Never before
// expires_at on the database's clock.
func ExpireDue(ctx context.Context, db *pgxpool.Pool, limit int) (found, expired int, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		found, expired, err = ExpireDueTx(ctx, tx, limit)
		return err
	})
	return found, expired, err
}

// ExpireDueTx is ExpireDue in the caller's transaction. It reads which variants it needs, locks their stocks in order,
// then the reservations, and checks again.
func ExpireDueTx(ctx context.Context, tx pgx.Tx, limit int) (found, expired int, err error) {
	due, err := reservations.Due(ctx, tx, Kind, limit)
	if err != nil || len(due) == 0 {
		return 0, 0, err
	}
	seen := make(map[Ref]bool)
	var variants []Ref
	refs := make([]reservations.Ref, len(due))
	for i := range due {
		refs[i] = due[i].Ref()
		if ref := (Ref{due[i].TenantID, due[i].ResourceKey}); !seen[ref] {
			seen[ref] = true
			variants = append(variants, ref)
		}
	}
	if _, _, err := lockTx(ctx, tx, variants); err != nil {
		return 0, 0, fmt.Errorf("expire due holds: %w", err)
	}
	locked, now, err := reservations.LockTx(ctx, tx, refs)
	if err != nil {
		return 0, 0, fmt.Errorf("expire due holds: %w", err)
	}
	still := slices.DeleteFunc(locked, func(r reservations.Reservation) bool { return !r.Due(now) })
	return len(due), len(still), endTx(ctx, tx, still, expiry(now))
}
