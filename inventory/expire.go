package inventory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
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
// free come first, in two transactions side by side, and each of the others by itself. So a hot item's sweep holds up no
// other item. Where the first fail on data, each of their variants is tried by itself too: one whose counters don't
// allow it is an error, and stops no other.
func ExpireDue(ctx context.Context, db *pgxpool.Pool, limit int) (Sweep, error) {
	due, err := readDue(ctx, db, limit)
	if err != nil {
		return Sweep{}, err
	}
	return due.expire(ctx, db)
}

func (s *Sweep) add(more Sweep) {
	if !more.ScannedAt.IsZero() {
		s.Expired, s.ScannedAt = s.Expired+more.Expired, more.ScannedAt
	}
}

// freed is what expireFree did, and which variants it left.
type freed struct {
	Sweep
	left []Ref
	err  error
}

// expireFree ends the holds of those variants whose stocks nobody has locked, in one transaction. It believes what was
// read of the holds without locks, which is so nearly always: what is wrong shows as they are ended, and then all the
// variants are left. So they are if the transaction fails on data.
func expireFree(ctx context.Context, db *pgxpool.Pool, due dueHolds) (f freed) {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		free, now, err := lockFreeTx(ctx, tx, due.variants)
		if err != nil {
			return err
		}
		var held []reservations.Reservation
		for _, variant := range due.variants {
			if free[variant] != nil {
				held = append(held, due.holds[variant]...)
			} else {
				f.left = append(f.left, variant)
			}
		}
		slices.SortFunc(held, func(a, b reservations.Reservation) int { // they are locked as they are ended
			return cmp.Or(bytes.Compare(a.TenantID[:], b.TenantID[:]), bytes.Compare(a.ReservationID[:], b.ReservationID[:]))
		})
		f.Sweep = Sweep{Expired: len(held), ScannedAt: now}
		return endTx(ctx, tx, held, expiry(now))
	})
	switch {
	case err == nil:
		return f
	case pgerr.IsData(err): // reservations.ErrShifted is
		return freed{left: due.variants}
	default:
		return freed{err: fmt.Errorf("expire due holds: %w", err)}
	}
}

// expireAlone ends those of one variant's holds that are due still.
func expireAlone(ctx context.Context, db *pgxpool.Pool, variant Ref, due []reservations.Reservation) (s Sweep, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, _, err := lockTx(ctx, tx, []Ref{variant}); err != nil {
			return err
		}
		s, err = expireTx(ctx, tx, due)
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
	due, err := readDue(ctx, tx, limit)
	if err != nil {
		return Sweep{}, err
	}
	if _, _, err := lockTx(ctx, tx, due.variants); err != nil {
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
		s, err = expireTx(ctx, tx, due)
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
	variants []Ref // in the order in which they were read
	holds    map[Ref][]reservations.Reservation
}

func readDue(ctx context.Context, db audit.Querier, limit int) (dueHolds, error) {
	found, err := reservations.Due(ctx, db, Kind, limit)
	if err != nil {
		return dueHolds{}, err
	}
	due := dueHolds{found: len(found), holds: make(map[Ref][]reservations.Reservation)}
	for i := range found {
		variant := Ref{found[i].TenantID, found[i].ResourceKey}
		if due.holds[variant] == nil {
			due.variants = append(due.variants, variant)
		}
		due.holds[variant] = append(due.holds[variant], found[i])
	}
	return due, nil
}

// expire ends those of the holds that are due still.
func (d dueHolds) expire(ctx context.Context, db *pgxpool.Pool) (s Sweep, err error) {
	if s.Found = d.found; s.Found == 0 {
		return s, db.QueryRow(ctx, clockSQL).Scan(&s.ScannedAt)
	}
	parts := d.halves()
	swept := make([]freed, len(parts))
	var sweeping sync.WaitGroup
	for i := range parts {
		sweeping.Go(func() { swept[i] = expireFree(ctx, db, parts[i]) })
	}
	sweeping.Wait()
	var left []Ref
	for i := range swept {
		s.add(swept[i].Sweep)
		left = append(left, swept[i].left...)
		err = errors.Join(err, swept[i].err)
	}
	for _, variant := range left {
		if err != nil && !pgerr.IsData(err) {
			break
		}
		one, failure := expireAlone(ctx, db, variant, d.holds[variant])
		s.add(one)
		err = errors.Join(err, failure)
	}
	return s, err
}

// worthHalving is how many holds are too many for one of two transactions that could share them.
const worthHalving = 100

// halves shares the variants out to two transactions, about as many holds to each; to one if there are few.
func (d dueHolds) halves() []dueHolds {
	if d.found < worthHalving || len(d.variants) == 1 {
		return []dueHolds{d}
	}
	half, n := 0, 0
	for half < len(d.variants)-1 && n < d.found/2 {
		n += len(d.holds[d.variants[half]])
		half++
	}
	first, second := d, d
	first.variants, second.variants = d.variants[:half], d.variants[half:]
	return []dueHolds{first, second}
}

// expireTx ends those of the holds that are due still; their stocks are locked.
func expireTx(ctx context.Context, tx pgx.Tx, due []reservations.Reservation) (Sweep, error) {
	refs := make([]reservations.Ref, len(due))
	for i := range due {
		refs[i] = due[i].Ref()
	}
	locked, now, err := reservations.LockTx(ctx, tx, refs)
	if err != nil {
		return Sweep{}, fmt.Errorf("expire due holds: %w", err)
	}
	still := slices.DeleteFunc(locked, func(r reservations.Reservation) bool { return !r.Due(now) })
	return Sweep{Expired: len(still), ScannedAt: now}, endTx(ctx, tx, still, expiry(now))
}
