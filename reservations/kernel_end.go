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
	return k.ending("commit", by, h, committing).one(ctx, k.db, nil)
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
	return k.ending("commit", by, h, committing).one(ctx, nil, tx)
}

// CommitAll commits several holds, of one kernel or of several, all or none: 1
// to 1,000 handles, each of another hold. It returns their rows in the order of
// the handles.
//
// Errors: those of Commit, for one of the handles.
func CommitAll(ctx context.Context, db *pgxpool.Pool, by Actor, handles []*Handle) (committed []Reservation, err error) {
	return endingAll("commit", by, handles, committing).all(ctx, db, nil)
}

// CommitAllTx is CommitAll in the caller's transaction; see Kernel.CommitTx. It
// locks the reservations in the order of their ids, so two such calls cannot
// deadlock. It can deadlock with a hold that comes up short and expires some of
// them (SQLSTATE 40P01): roll back and repeat.
func CommitAllTx(ctx context.Context, tx pgx.Tx, by Actor, handles []*Handle) (committed []Reservation, err error) {
	return endingAll("commit", by, handles, committing).all(ctx, nil, tx)
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
	return k.ending("release", by, h, releasing(reason)).one(ctx, k.db, nil)
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
	released, err = k.ending("release", by, h, releasing(reason)).one(ctx, nil, tx)
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
	return endingAll("release", by, handles, releasing(reason)).all(ctx, db, nil)
}

// ReleaseAllTx is ReleaseAll in the caller's transaction; see Kernel.ReleaseTx.
// It locks the reservations in the order of their ids, and can deadlock with a
// hold as CommitAllTx can.
func ReleaseAllTx(ctx context.Context, tx pgx.Tx, by Actor, handles []*Handle, reason ReleaseReason) (released []Reservation, conflict *ConflictError, err error) {
	released, err = endingAll("release", by, handles, releasing(reason)).all(ctx, nil, tx)
	conflict, err = conflictOf(err)
	return released, conflict, err
}

var reasonForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// ending is a verb that ends holds, all or none.
type ending struct {
	verb      string
	kind      string // of the kernel; empty: of any
	by        Actor
	handles   []*Handle
	observers []observer
	to        reservationrows.Ending
}

var committing = reservationrows.Ending{To: Committed}

func releasing(reason ReleaseReason) reservationrows.Ending {
	return reservationrows.Ending{To: Released, Reason: reason}
}

func (k *Kernel[K, W]) ending(verb string, by Actor, h *Handle, to reservationrows.Ending) *ending {
	return &ending{verb, k.kind, by, []*Handle{h}, []observer{k.config.Observe}, to}
}

func endingAll(verb string, by Actor, handles []*Handle, to reservationrows.Ending) *ending {
	return &ending{verb, "", by, handles, observers(handles), to}
}

// one is all for one hold.
func (e *ending) one(ctx context.Context, db *pgxpool.Pool, tx pgx.Tx) (Reservation, error) {
	ended, err := e.all(ctx, db, tx)
	if err != nil {
		return Reservation{}, err
	}
	return ended[0], nil
}

// handlesMax is how many holds one CommitAll or ReleaseAll ends.
const handlesMax = 1000

// all ends the holds in a transaction of db, or in tx if that is not nil, and
// returns their rows in the order of the handles. A conflict is its error; in a
// transaction of its own it commits what endTx wrote first.
func (e *ending) all(ctx context.Context, db *pgxpool.Pool, tx pgx.Tx) (ended []Reservation, err error) {
	err = observed(ctx, e.verb, e.observers, func() error {
		if len(e.handles) < 1 || len(e.handles) > handlesMax {
			return fmt.Errorf("%w: %s %d holds: want 1 to %d", ErrInvalid, e.verb, len(e.handles), handlesMax)
		}
		return use(e.handles, e.kind, tx != nil, func() (err error) {
			var conflict error
			err = inTx(ctx, db, tx, func(tx pgx.Tx) (err error) {
				ended, conflict, err = e.endTx(ctx, tx)
				return err
			})
			return cmp.Or(err, conflict)
		})
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// endTx ends the holds, or returns a conflict. A release then expires those
// that are due.
func (e *ending) endTx(ctx context.Context, tx pgx.Tx) (ended []Reservation, conflict, err error) {
	to := e.to
	if to.To == Released && (!reasonForm.MatchString(string(to.Reason)) || to.Reason == reservationrows.TTL) {
		return nil, nil, fmt.Errorf("%w: release for the reason %.80q: want up to 64 lower-case letters, digits and underscores, not %q",
			ErrInvalid, to.Reason, reservationrows.TTL)
	}
	locked, now, err := lockTx(ctx, tx, e.by, e.handles)
	if err != nil {
		return nil, nil, err
	}
	if conflict := reservationrows.MustBeLive(locked, now); conflict != nil {
		if to.To == Released {
			_, err = expireTx(ctx, tx, locked, now)
		}
		return nil, conflict, err
	}
	to.At, to.Origin = now, e.by.Origin
	if err := reservationrows.EndTx(ctx, tx, to, locked); err != nil {
		return nil, nil, err
	}
	rows := make(map[uuid.UUID]Reservation, len(locked))
	for _, r := range locked {
		rows[r.ReservationID] = r
	}
	ended = make([]Reservation, len(e.handles))
	for i, h := range e.handles {
		ended[i] = rows[h.ID()]
	}
	return ended, nil, nil
}

// Extend moves a hold's deadline by the given time, at most to the lifetime cap
// after it was made, and returns a new handle.
//
// Errors: ErrHandleUsed; ErrLifetimeExceeded; ErrInvalid;
// *ConflictError if it has ended or is past its deadline; ErrNotFound if the
// actor's tenant has no such hold of this kind.
func (k *Kernel[K, W]) Extend(ctx context.Context, by Actor, h *Handle, longer time.Duration) (extended *Handle, err error) {
	return k.extend(ctx, nil, by, h, longer)
}

// ExtendTx is Extend in the caller's transaction. It locks the reservation
// until the transaction ends. After an error of its own (those of Extend) the
// transaction can go on. Isolation levels: as CommitTx.
func (k *Kernel[K, W]) ExtendTx(ctx context.Context, tx pgx.Tx, by Actor, h *Handle, longer time.Duration) (extended *Handle, err error) {
	return k.extend(ctx, tx, by, h, longer)
}

// extend extends a hold in a transaction of its own, or in tx if that is not
// nil.
func (k *Kernel[K, W]) extend(ctx context.Context, tx pgx.Tx, by Actor, h *Handle, longer time.Duration) (extended *Handle, err error) {
	one := []*Handle{h}
	err = observed(ctx, "extend", []observer{k.config.Observe}, func() error {
		return use(one, k.kind, tx != nil, func() error {
			return inTx(ctx, k.db, tx, func(tx pgx.Tx) (err error) {
				extended, err = k.extendTx(ctx, tx, by, one, longer)
				return err
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return extended, nil
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
