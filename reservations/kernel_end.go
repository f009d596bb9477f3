package reservations

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Commit ends a hold as committed.
//
// Errors: ErrHandleUsed; *ConflictError if it has ended, or is past its deadline; ErrNotFound if it was purged.
func (k *Kernel[K, W]) Commit(ctx context.Context, by Actor, h *Handle) error {
	return k.observe(ctx, "commit", func() error {
		return h.use(func() error {
			return pgx.BeginFunc(ctx, k.db, func(tx pgx.Tx) error { return k.commitTx(ctx, tx, by, h) })
		})
	})
}

// CommitTx is Commit in the caller's transaction. It locks the reservation.
func (k *Kernel[K, W]) CommitTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle) error {
	return k.observe(ctx, "commit", func() error {
		return h.use(func() error { return k.commitTx(ctx, tx, by, h) })
	})
}

func (k *Kernel[K, W]) commitTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle) error {
	locked, now, err := k.lockTx(ctx, tx, by, h)
	if err != nil {
		return err
	}
	if err := MustBeLive(locked, now); err != nil {
		return err
	}
	return EndTx(ctx, tx, Ending{To: Committed, At: now, Origin: by.Origin}, locked)
}

// Release ends a hold as released and gives its units back, also when it is past its deadline and not swept yet.
//
// Errors: ErrHandleUsed; *ConflictError if it has ended; ErrNotFound if it was purged; ErrInvalid for a reason that a
// caller may not give.
func (k *Kernel[K, W]) Release(ctx context.Context, by Actor, h *Handle, reason ReleaseReason) error {
	return k.observe(ctx, "release", func() error {
		return h.use(func() error {
			return pgx.BeginFunc(ctx, k.db, func(tx pgx.Tx) error { return k.releaseTx(ctx, tx, by, h, reason) })
		})
	})
}

// ReleaseTx is Release in the caller's transaction. It locks the reservation.
func (k *Kernel[K, W]) ReleaseTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle, reason ReleaseReason) error {
	return k.observe(ctx, "release", func() error {
		return h.use(func() error { return k.releaseTx(ctx, tx, by, h, reason) })
	})
}

func (k *Kernel[K, W]) releaseTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle, reason ReleaseReason) error {
	if !slices.Contains(ReleaseReasons, reason) {
		return fmt.Errorf("reservation: release for %q: %w", reason, ErrInvalid)
	}
	locked, now, err := k.lockTx(ctx, tx, by, h)
	if err != nil {
		return err
	}
	if locked[0].Status != Held {
		return &ConflictError{ID: h.ID(), Expected: Held, Actual: locked[0].Status}
	}
	return EndTx(ctx, tx, Ending{To: Released, Reason: reason, At: now, Origin: by.Origin}, locked)
}

// Extend moves a hold's deadline by the given time, at most to the lifetime cap after it was made, and returns the handle
// to go on with.
//
// Errors: ErrHandleUsed; ErrLifetimeExceeded; ErrInvalid; *ConflictError if it has ended, or is past its deadline;
// ErrNotFound if it was purged.
func (k *Kernel[K, W]) Extend(ctx context.Context, by Actor, h *Handle, longer time.Duration) (extended *Handle, err error) {
	err = k.observe(ctx, "extend", func() error {
		return h.use(func() error {
			return pgx.BeginFunc(ctx, k.db, func(tx pgx.Tx) (err error) {
				extended, err = k.extendTx(ctx, tx, by, h, longer)
				return err
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return extended, nil
}

// ExtendTx is Extend in the caller's transaction. It locks the reservation.
func (k *Kernel[K, W]) ExtendTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle, longer time.Duration) (extended *Handle, err error) {
	err = k.observe(ctx, "extend", func() error {
		return h.use(func() error {
			extended, err = k.extendTx(ctx, tx, by, h, longer)
			return err
		})
	})
	return extended, err
}

func (k *Kernel[K, W]) extendTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle, longer time.Duration) (*Handle, error) {
	if longer < time.Millisecond {
		return nil, fmt.Errorf("reservation: extend by %s, want at least a millisecond: %w", longer, ErrInvalid)
	}
	if err := by.check(); err != nil {
		return nil, err
	}
	if h.reservation.ResourceKind != k.resource.Kind() {
		return nil, ErrNotFound
	}
	held, err := ExtendTx(ctx, tx, []Ref{{by.TenantID, h.ID()}}, longer.Truncate(time.Microsecond), k.config.LifetimeMax, by.Origin)
	if err != nil {
		return nil, err
	}
	return newHandle(held[0]), nil
}

// lockTx locks the handle's reservation and reads the database's clock.
func (k *Kernel[K, W]) lockTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle) ([]Reservation, time.Time, error) {
	if err := by.check(); err != nil {
		return nil, time.Time{}, err
	}
	locked, now, err := LockTx(ctx, tx, []Ref{{by.TenantID, h.ID()}})
	if err != nil {
		return nil, now, err
	}
	if len(locked) == 0 || locked[0].ResourceKind != k.resource.Kind() {
		return nil, now, ErrNotFound
	}
	return locked, now, nil
}
