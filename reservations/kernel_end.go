package reservations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/reservationrows"
)

// Commit ends a hold as committed and returns its row, with the committed units
// and their holder.
//
// Errors: ErrHandleUsed; ErrInvalid; *ConflictError if it has ended or
// is past its deadline; ErrNotFound if the actor's tenant has no such hold of
// this kind.
func (k *Kernel[K, W]) Commit(ctx context.Context, by Actor, h *Handle) (committed Reservation, err error) {
	return k.endOne(ctx, "commit", h, false, func(one []*Handle) ([]Reservation, error) { return commit(ctx, k.db, by, one) })
}

// CommitTx is Commit in the caller's transaction. It locks the reservation
// until the transaction ends. After an error of its own (those of Commit) the
// transaction can go on.
//
// A caller that lowers a capacity commits first, and then lowers it by the
// returned Quantity, which is the row's, whichever process made the handle.
//
// It is correct at every isolation level. At REPEATABLE READ and SERIALIZABLE,
// a hold that was made after the transaction's first statement is not found,
// and one that was changed since is SQLSTATE 40001.
func (k *Kernel[K, W]) CommitTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle) (committed Reservation, err error) {
	return k.endOne(ctx, "commit", h, true, func(one []*Handle) ([]Reservation, error) { return commitTx(ctx, tx, by, one) })
}

// CommitAll commits several holds, of one kernel or of several, all or none: 1
// to 1,000 handles, each of another hold. It returns their rows in the order of
// the handles.
//
// Errors: those of Commit, for one of the handles.
func CommitAll(ctx context.Context, db *pgxpool.Pool, by Actor, handles []*Handle) (committed []Reservation, err error) {
	return endAll(ctx, "commit", handles, false, func() ([]Reservation, error) { return commit(ctx, db, by, handles) })
}

// CommitAllTx is CommitAll in the caller's transaction; see Kernel.CommitTx. It
// locks the reservations in the order of their ids, so two such calls cannot
// deadlock. It can deadlock with a hold that comes up short and expires some of
// them (SQLSTATE 40P01): roll back and repeat.
func CommitAllTx(ctx context.Context, tx pgx.Tx, by Actor, handles []*Handle) (committed []Reservation, err error) {
	return endAll(ctx, "commit", handles, true, func() ([]Reservation, error) { return commitTx(ctx, tx, by, handles) })
}

func commit(ctx context.Context, db *pgxpool.Pool, by Actor, handles []*Handle) (committed []Reservation, err error) {
	err = inTx(ctx, db, func(tx pgx.Tx) (err error) {
		committed, err = commitTx(ctx, tx, by, handles)
		return err
	})
	return committed, err
}

func commitTx(ctx context.Context, tx pgx.Tx, by Actor, handles []*Handle) ([]Reservation, error) {
	locked, now, err := lockTx(ctx, tx, by, handles)
	if err != nil {
		return nil, err
	}
	if err := reservationrows.MustBeLive(locked, now); err != nil {
		return nil, err
	}
	return endTx(ctx, tx, reservationrows.Ending{To: Committed, At: now, Origin: by.Origin}, handles, locked)
}

// Release ends a hold as released, gives its units back and returns its row.
// The reason is one of the constants or the caller's own: a lower-case letter,
// then up to 63 lower-case letters, digits and underscores. "ttl" is the reason
// of an expiry.
//
// A hold that is past its deadline is not released: Release records its expiry,
// if no sweep has done so, and returns a *ConflictError with Actual Expired.
// Its units are free either way.
//
// Errors: ErrHandleUsed; ErrInvalid; *ConflictError if it has ended or
// is past its deadline; ErrNotFound if the actor's tenant has no such hold of
// this kind.
func (k *Kernel[K, W]) Release(ctx context.Context, by Actor, h *Handle, reason ReleaseReason) (released Reservation, err error) {
	return k.endOne(ctx, "release", h, false, func(one []*Handle) ([]Reservation, error) {
		return release(ctx, k.db, by, one, reason)
	})
}

// ReleaseTx is Release in the caller's transaction. It locks the reservation
// until the transaction ends. After an error of its own (those of Release) the
// transaction can go on.
//
// The conflict is an outcome, not an error: the expiry of a hold that is past
// its deadline is written too, so the caller commits. The row is then the zero
// value. If the caller rolls back, the next sweep or hold of the key records
// the expiry.
//
// Isolation levels: as CommitTx.
func (k *Kernel[K, W]) ReleaseTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle, reason ReleaseReason) (released Reservation, conflict *ConflictError, err error) {
	released, err = k.endOne(ctx, "release", h, true, func(one []*Handle) ([]Reservation, error) {
		released, conflict, err := releaseTx(ctx, tx, by, one, reason)
		return released, cmp.Or(err, conflict)
	})
	conflict, err = conflictOf(err)
	return released, conflict, err
}

// conflictOf separates the conflict of a release from its errors.
func conflictOf(err error) (*ConflictError, error) {
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		return conflict, nil
	}
	return nil, err
}

// ReleaseAll releases several holds, of one kernel or of several, all or none:
// 1 to 1,000 handles, each of another hold. It returns their rows in the order
// of the handles. If one of them has ended or is past its deadline, none is
// released; the expiry of those that are past it is recorded.
//
// Errors: those of Release, for one of the handles.
func ReleaseAll(ctx context.Context, db *pgxpool.Pool, by Actor, handles []*Handle, reason ReleaseReason) (released []Reservation, err error) {
	return endAll(ctx, "release", handles, false, func() ([]Reservation, error) { return release(ctx, db, by, handles, reason) })
}

// ReleaseAllTx is ReleaseAll in the caller's transaction; see Kernel.ReleaseTx.
// It locks the reservations in the order of their ids, and can deadlock with a
// hold as CommitAllTx can.
func ReleaseAllTx(ctx context.Context, tx pgx.Tx, by Actor, handles []*Handle, reason ReleaseReason) (released []Reservation, conflict *ConflictError, err error) {
	released, err = endAll(ctx, "release", handles, true, func() ([]Reservation, error) {
		released, conflict, err := releaseTx(ctx, tx, by, handles, reason)
		return released, cmp.Or(err, conflict)
	})
	conflict, err = conflictOf(err)
	return released, conflict, err
}

// release commits the expiry of what is due, then returns the conflict.
func release(ctx context.Context, db *pgxpool.Pool, by Actor, handles []*Handle, reason ReleaseReason) (released []Reservation, err error) {
	var conflict error
	err = inTx(ctx, db, func(tx pgx.Tx) (err error) {
		released, conflict, err = releaseTx(ctx, tx, by, handles, reason)
		return err
	})
	return released, cmp.Or(err, conflict)
}

var reasonForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// releaseTx releases the holds, or expires those that are due and returns the
// conflict.
func releaseTx(ctx context.Context, tx pgx.Tx, by Actor, handles []*Handle, reason ReleaseReason) (released []Reservation, conflict, err error) {
	if !reasonForm.MatchString(string(reason)) || reason == reservationrows.TTL {
		return nil, nil, fmt.Errorf("%w: release for the reason %.80q: want up to 64 lower-case letters, digits and underscores, not %q", ErrInvalid, reason, reservationrows.TTL)
	}
	locked, now, err := lockTx(ctx, tx, by, handles)
	if err != nil {
		return nil, nil, err
	}
	if conflict := reservationrows.MustBeLive(locked, now); conflict != nil {
		return nil, conflict, expireTx(ctx, tx, locked, now)
	}
	ending := reservationrows.Ending{To: Released, Reason: reason, At: now, Origin: by.Origin}
	released, err = endTx(ctx, tx, ending, handles, locked)
	return released, nil, err
}

// endTx ends the locked reservations of the handles, and returns them in the
// order of the handles.
func endTx(ctx context.Context, tx pgx.Tx, ending reservationrows.Ending, handles []*Handle, locked []Reservation) ([]Reservation, error) {
	if err := reservationrows.EndTx(ctx, tx, ending, locked); err != nil {
		return nil, err
	}
	rows := make(map[uuid.UUID]Reservation, len(locked))
	for _, r := range locked {
		rows[r.ReservationID] = r
	}
	ended := make([]Reservation, len(handles))
	for i, h := range handles {
		ended[i] = rows[h.ID()]
	}
	return ended, nil
}

// Extend moves a hold's deadline by the given time, at most to the lifetime cap
// after it was made, and returns a new handle.
//
// Errors: ErrHandleUsed; ErrLifetimeExceeded; ErrInvalid;
// *ConflictError if it has ended or is past its deadline; ErrNotFound if the
// actor's tenant has no such hold of this kind.
func (k *Kernel[K, W]) Extend(ctx context.Context, by Actor, h *Handle, longer time.Duration) (extended *Handle, err error) {
	err = k.verb(ctx, "extend", h, false, func(one []*Handle) error {
		return inTx(ctx, k.db, func(tx pgx.Tx) (err error) {
			extended, err = k.extendTx(ctx, tx, by, one, longer)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return extended, nil
}

// ExtendTx is Extend in the caller's transaction. It locks the reservation
// until the transaction ends. After an error of its own (those of Extend) the
// transaction can go on. Isolation levels: as CommitTx.
func (k *Kernel[K, W]) ExtendTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle, longer time.Duration) (extended *Handle, err error) {
	err = k.verb(ctx, "extend", h, true, func(one []*Handle) error {
		extended, err = k.extendTx(ctx, tx, by, one, longer)
		return err
	})
	return extended, err
}

func (k *Kernel[K, W]) extendTx(ctx context.Context, tx pgx.Tx, by Actor, one []*Handle, longer time.Duration) (*Handle, error) {
	if longer < time.Millisecond {
		return nil, fmt.Errorf("%w: extend by %s, want at least a millisecond", ErrInvalid, longer)
	}
	locked, now, err := lockTx(ctx, tx, by, one)
	if err != nil {
		return nil, err
	}
	extended, err := reservationrows.ExtendLockedTx(ctx, tx, locked, now, longer.Truncate(time.Microsecond), k.config.LifetimeMax, by.Origin)
	if err != nil {
		return nil, err
	}
	return newHandle(extended[0], k.config.Observe), nil
}

// verb runs a verb of this kernel on one handle. joined means that it joins the
// caller's transaction.
func (k *Kernel[K, W]) verb(ctx context.Context, verb string, h *Handle, joined bool, run func(one []*Handle) error) error {
	one := []*Handle{h}
	return observed(ctx, verb, []observer{k.config.Observe}, func() error {
		return use(one, joined, func() error {
			if kind := h.reservation.ResourceKind; kind != k.kind {
				return fmt.Errorf("%w: a handle of another kernel: its kind is %s, the kernel's is %s", ErrInvalid, kind, k.kind)
			}
			return run(one)
		})
	})
}

// endOne runs a verb that ends a hold of this kernel, and returns its row.
func (k *Kernel[K, W]) endOne(ctx context.Context, verb string, h *Handle, joined bool, run func(one []*Handle) ([]Reservation, error)) (Reservation, error) {
	var ended []Reservation
	err := k.verb(ctx, verb, h, joined, func(one []*Handle) (err error) {
		ended, err = run(one)
		return err
	})
	if err != nil {
		return Reservation{}, err
	}
	return ended[0], nil
}

// handlesMax is how many holds one CommitAll or ReleaseAll ends.
const handlesMax = 1000

// endAll runs a verb that ends several holds, and returns their rows.
func endAll(ctx context.Context, verb string, handles []*Handle, joined bool, run func() ([]Reservation, error)) (ended []Reservation, err error) {
	err = observed(ctx, verb, observers(handles), func() error {
		if len(handles) < 1 || len(handles) > handlesMax {
			return fmt.Errorf("%w: %s %d holds: want 1 to %d", ErrInvalid, verb, len(handles), handlesMax)
		}
		return use(handles, joined, func() (err error) {
			ended, err = run()
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// lockTx locks the handles' reservations in the order of their ids and reads
// the database's clock. Every handle's reservation must be there, of the
// actor's tenant and of the handle's kind.
func lockTx(ctx context.Context, tx pgx.Tx, by Actor, handles []*Handle) (locked []Reservation, now time.Time, err error) {
	if err := by.check(); err != nil {
		return nil, now, err
	}
	refs := make([]reservationrows.Ref, len(handles))
	kinds := make(map[uuid.UUID]string, len(handles))
	for i, h := range handles {
		refs[i] = h.reservation.Ref()
		if h.reservation.TenantID != by.TenantID {
			return nil, now, notFound(h)
		}
		kinds[h.ID()] = h.reservation.ResourceKind
	}
	if len(kinds) < len(handles) {
		return nil, now, fmt.Errorf("%w: two handles of one hold", ErrInvalid)
	}
	locked, now, err = reservationrows.LockTx(ctx, tx, refs)
	if err != nil {
		return nil, now, err
	}
	for i := range locked {
		if locked[i].ResourceKind == kinds[locked[i].ReservationID] {
			delete(kinds, locked[i].ReservationID)
		}
	}
	if i := slices.IndexFunc(handles, func(h *Handle) bool { return kinds[h.ID()] != "" }); i >= 0 {
		return nil, now, notFound(handles[i])
	}
	return locked, now, nil
}

func notFound(h *Handle) error {
	return fmt.Errorf("%w: %s %s", ErrNotFound, h.reservation.ResourceKind, h.ID())
}
