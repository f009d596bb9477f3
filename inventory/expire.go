package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgerr"
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
//
// It waits for the stock of a variant only in a transaction that has nothing else locked: the variants whose stocks are
// free come first, together, and each of the others by itself. So a hot item's sweep holds up no other item. If the first
// fail on data, each is tried by itself too: a variant whose counters don't allow it is an error, and stops no other.
func ExpireDue(ctx context.Context, db *pgxpool.Pool, limit int) (s Sweep, err error) {
	var due dueHolds
	busy := make(map[Ref][]reservations.Ref)
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if due, err = dueHoldsTx(ctx, tx, limit); err != nil {
			return err
		}
		free, _, err := lockFreeTx(ctx, tx, due.variants)
		if err != nil {
			return fmt.Errorf("expire due holds: %w", err)
		}
		var refs []reservations.Ref
		for _, variant := range due.variants {
			if free[variant] != nil {
				refs = append(refs, due.holds[variant]...)
			} else {
				busy[variant] = due.holds[variant]
			}
		}
		s, err = expireTx(ctx, tx, refs)
		return err
	})
	if err != nil {
		s = Sweep{}
	}
	s.Found = due.found
	if pgerr.IsData(err) {
		busy, err = due.holds, nil
	}
	for _, variant := range due.variants {
		if busy[variant] == nil {
			continue
		}
		if err != nil && !pgerr.IsData(err) {
			break
		}
		one, failure := expireAlone(ctx, db, variant, busy[variant])
		if err = errors.Join(err, failure); failure == nil {
			s.Expired, s.ScannedAt = s.Expired+one.Expired, one.ScannedAt
		}
	}
	return s, err
}

// expireAlone ends those of one variant's holds that are due still.
func expireAlone(ctx context.Context, db *pgxpool.Pool, variant Ref, refs []reservations.Ref) (s Sweep, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, _, err := lockTx(ctx, tx, []Ref{variant}); err != nil {
			return err
		}
		s, err = expireTx(ctx, tx, refs)
		return err
	})
	if err != nil {
		return Sweep{}, fmt.Errorf("expire due holds of variant %s: %w", variant.VariantID, err)
	}
	return s, nil
}

// ExpireDueTx is ExpireDue in the caller's transaction, the only one: it reads which variants it needs, waits for their
// stocks in order, then locks the reservations, and checks again.
func ExpireDueTx(ctx context.Context, tx pgx.Tx, limit int) (Sweep, error) {
	due, err := dueHoldsTx(ctx, tx, limit)
	if err != nil {
		return Sweep{}, err
	}
	if _, _, err := lockTx(ctx, tx, due.variants); err != nil {
		return Sweep{}, fmt.Errorf("expire due holds: %w", err)
	}
	var refs []reservations.Ref
	for _, variant := range due.variants {
		refs = append(refs, due.holds[variant]...)
	}
	s, err := expireTx(ctx, tx, refs)
	s.Found = due.found
	return s, err
}

// ExpireVariant ends up to limit holds of one variant that are past their deadline, the longest due first, and says how
// many. It locks the variant's stock, then the holds.
func ExpireVariant(ctx context.Context, db *pgxpool.Pool, variant Ref, limit int) (expired int, err error) {
	var s Sweep
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, now, err := lockTx(ctx, tx, []Ref{variant})
		if err != nil {
			return err
		}
		due, err := reservations.DueOfKey(ctx, tx, variant.TenantID, Kind, variant.VariantID, now, limit)
		if err != nil {
			return err
		}
		refs := make([]reservations.Ref, len(due))
		for i := range due {
			refs[i] = due[i].Ref()
		}
		s, err = expireTx(ctx, tx, refs)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("expire due holds of variant %s: %w", variant.VariantID, err)
	}
	return s.Expired, nil
}

// dueHolds are holds that were due when they were read, by variant.
type dueHolds struct {
	found    int
	variants []Ref
	holds    map[Ref][]reservations.Ref
}

func dueHoldsTx(ctx context.Context, tx pgx.Tx, limit int) (dueHolds, error) {
	found, err := reservations.Due(ctx, tx, Kind, limit)
	if err != nil {
		return dueHolds{}, err
	}
	due := dueHolds{found: len(found), holds: make(map[Ref][]reservations.Ref)}
	for i := range found {
		variant := Ref{found[i].TenantID, found[i].ResourceKey}
		if due.holds[variant] == nil {
			due.variants = append(due.variants, variant)
		}
		due.holds[variant] = append(due.holds[variant], found[i].Ref())
	}
	return due, nil
}

// expireTx ends those of the holds that are due still; their stocks are locked.
func expireTx(ctx context.Context, tx pgx.Tx, refs []reservations.Ref) (Sweep, error) {
	locked, now, err := reservations.LockTx(ctx, tx, refs)
	if err != nil {
		return Sweep{}, fmt.Errorf("expire due holds: %w", err)
	}
	still := slices.DeleteFunc(locked, func(r reservations.Reservation) bool { return !r.Due(now) })
	return Sweep{Expired: len(still), ScannedAt: now}, endTx(ctx, tx, still, expiry(now))
}
