package inventory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/reservations"
)

// Sweep is what one batch of an expiry sweep did.
type Sweep struct {
	// Found is how many holds were due, Expired how many of them this batch ended: another sweep may have been faster.
	Found, Expired int
	// ScannedAt is the reading of the database's clock that the deadlines were compared with.
	ScannedAt time.Time
}

// ExpireDue ends up to limit holds that are past their deadline, the longest due first, and gives their units back.
// Never before expires_at on the database's clock. Several may run at once.
func ExpireDue(ctx context.Context, db *pgxpool.Pool, limit int) (s Sweep, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		s, err = ExpireDueTx(ctx, tx, limit)
		return err
	})
	return s, err
}

// ExpireDueTx is ExpireDue in the caller's transaction. It reads which variants it needs, locks their stocks in order,
// then the reservations, and checks again.
func ExpireDueTx(ctx context.Context, tx pgx.Tx, limit int) (Sweep, error) {
	due, err := reservations.Due(ctx, tx, Kind, limit)
	if err != nil {
		return Sweep{}, err
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
		return Sweep{}, fmt.Errorf("expire due holds: %w", err)
	}
	locked, now, err := reservations.LockTx(ctx, tx, refs)
	if err != nil {
		return Sweep{}, fmt.Errorf("expire due holds: %w", err)
	}
	still := slices.DeleteFunc(locked, func(r reservations.Reservation) bool { return !r.Due(now) })
	s := Sweep{Found: len(due), Expired: len(still), ScannedAt: now}
	return s, endTx(ctx, tx, still, expiry(now))
}
