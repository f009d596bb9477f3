package reservations

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// HoldOpts are the units of a hold, its duration and its holder.
type HoldOpts struct {
	// Quantity is in units, 1 or more. Required.
	Quantity int64
	// TTL is how long the hold lasts: from a millisecond to Config.LifetimeMax.
	// Required.
	TTL time.Duration
	// HolderID names the holder: a cart, a booking. Default: the actor's id.
	HolderID string
}

// Hold holds units until the TTL is over, and returns a handle to end the hold.
// The window of a resource without windows is NoWindow{}.
//
// Errors: *InsufficientError; ErrLifetimeExceeded for a TTL above
// Config.LifetimeMax; ErrInvalid; what the resource returned; or the
// database's. After an error nothing is held, except that the
// outcome of a COMMIT can be unknown. Such a hold ends by its TTL.
func (k *Kernel[K, W]) Hold(ctx context.Context, by Actor, key K, window W, opts HoldOpts) (*Handle, error) {
	handles, err := HoldAll(ctx, k.db, by, k.Part(key, window, opts))
	if err != nil {
		return nil, err
	}
	return handles[0], nil
}

// HoldTx is Hold in the caller's transaction, in a savepoint: after an error of
// its own (those of Hold) the transaction can go on. Other transactions see the
// hold after the commit.
//
// It locks (tenant, kind, key) until the transaction ends. Two transactions
// that call HoldTx for the same keys in different orders can deadlock, and
// Postgres ends one of them (SQLSTATE 40P01): call it in one order of (kind,
// key) everywhere, or call HoldAllTx once, or roll back and repeat. Hold first,
// then end other holds.
//
// A hold that comes up short also locks the holds of the key that are past
// their deadline. It can deadlock with another transaction that ends several of
// them (CommitAll, ReleaseAll, or one …Tx verb after the other), with the same
// error. No order of calls prevents that: roll back and repeat.
//
// It is correct at READ COMMITTED only, and returns ErrIsolation at another
// level.
func (k *Kernel[K, W]) HoldTx(ctx context.Context, tx pgx.Tx, by Actor, key K, window W, opts HoldOpts) (*Handle, error) {
	handles, err := HoldAllTx(ctx, tx, by, k.Part(key, window, opts))
	if err != nil {
		return nil, err
	}
	return handles[0], nil
}

// Part is one of several holds that are made together, made by Kernel.Part.
type Part struct {
	kind, key, window string
	opts              HoldOpts
	disjoint          bool
	capacity, held    func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID) (int64, error)
	observe           observer
	err               error // why it can't be held
}

// Part returns a hold of this kernel as a part of HoldAll.
func (k *Kernel[K, W]) Part(key K, window W, opts HoldOpts) Part {
	p := Part{
		kind: k.kind, opts: opts, disjoint: k.disjoint, observe: k.config.Observe,
		capacity: func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID) (int64, error) {
			return k.resource.Capacity(ctx, tx, tenantID, key, window)
		},
		held: func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID) (int64, error) {
			return k.resource.Held(ctx, tx, tenantID, key, window)
		},
	}
	p.opts.TTL = opts.TTL.Truncate(time.Microsecond) // the precision of a row
	p.key, p.window, p.err = canonicalPair(key, window)
	if p.err == nil {
		p.err = opts.check(k.config.LifetimeMax)
	}
	return p
}

// check returns an error for what can't be held.
func (o HoldOpts) check(lifetimeMax time.Duration) error {
	switch {
	case o.Quantity < 1 || o.Quantity > quantityMax:
		return fmt.Errorf("%w: hold %d units, want 1 to %d", ErrInvalid, o.Quantity, int64(quantityMax))
	case o.TTL < time.Millisecond:
		return fmt.Errorf("%w: hold for %s, want at least a millisecond", ErrInvalid, o.TTL)
	case o.TTL > lifetimeMax:
		return fmt.Errorf("%w: hold for %s, at most %s", ErrLifetimeExceeded, o.TTL, lifetimeMax)
	case len(o.HolderID) > keyMax || !isText(o.HolderID):
		return fmt.Errorf("%w: hold for a holder of %d bytes, want at most %d, of UTF-8 without NUL", ErrInvalid, len(o.HolderID), keyMax)
	}
	return nil
}

const (
	quantityMax = 1 << 53
	partsMax    = 64
)

// HoldAll makes several holds, of one kernel or of several, all or none, and
// returns their handles in the order of the parts. It takes 1 to 64 parts. It
// locks the keys in sorted order, so two such calls cannot deadlock. It can
// deadlock with a transaction that ends several due holds, and is then
// repeated; see Kernel.
//
// Errors: those of Hold, for the first part that was rejected in sorted order.
func HoldAll(ctx context.Context, db *pgxpool.Pool, by Actor, parts ...Part) (handles []*Handle, err error) {
	return holdAll(ctx, by, parts, func(hold func(tx pgx.Tx) error) error { return inTx(ctx, db, nil, hold) })
}

// HoldAllTx is HoldAll in the caller's transaction, in a savepoint; see
// Kernel.HoldTx, also for its deadlocks.
func HoldAllTx(ctx context.Context, tx pgx.Tx, by Actor, parts ...Part) (handles []*Handle, err error) {
	return holdAll(ctx, by, parts, func(hold func(tx pgx.Tx) error) error { return pgx.BeginFunc(ctx, tx, hold) })
}

// holdAll makes the holds in what begin begins: a transaction or a savepoint.
func holdAll(ctx context.Context, by Actor, parts []Part, begin func(hold func(tx pgx.Tx) error) error) (handles []*Handle, err error) {
	observers := make([]observer, len(parts))
	for i := range parts {
		observers[i] = parts[i].observe
	}
	err = observed(ctx, "hold", observers, func() error {
		return begin(func(tx pgx.Tx) (err error) {
			handles, err = holdAllTx(ctx, tx, by, parts)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return handles, nil
}

// holdAllTx makes the holds, in a transaction or a savepoint that is rolled
// back after an error.
func holdAllTx(ctx context.Context, tx pgx.Tx, by Actor, parts []Part) ([]*Handle, error) {
	if len(parts) < 1 || len(parts) > partsMax {
		return nil, fmt.Errorf("%w: hold %d parts, want 1 to %d", ErrInvalid, len(parts), partsMax)
	}
	order := make([]int, len(parts))
	for i := range parts {
		if parts[i].err != nil {
			return nil, parts[i].err
		}
		if parts[i].capacity == nil {
			return nil, fmt.Errorf("%w: a part that no kernel made", ErrInvalid)
		}
		order[i] = i
	}
	if err := by.check(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(parts[a].sortKey(), parts[b].sortKey()) })
	handles := make([]*Handle, len(parts))
	for _, i := range order {
		if err := lockKeyTx(ctx, tx, by.TenantID, &parts[i]); err != nil {
			return nil, err
		}
	}
	for _, i := range order {
		r, err := holdPartTx(ctx, tx, by, &parts[i])
		if err != nil {
			return nil, err
		}
		handles[i] = newHandle(r, parts[i].observe)
	}
	return handles, nil
}

// lockName names the lock of a part: by its key, and by its window if windows
// are disjoint.
func (p *Part) lockName() string {
	if p.disjoint {
		return p.kind + "\x00" + p.key + "\x00" + p.window
	}
	return p.kind + "\x00" + p.key
}

func (p *Part) sortKey() string { return p.kind + "\x00" + p.key + "\x00" + p.window }

const lockKeySQL = `SELECT pg_advisory_xact_lock($1)`

// lockKeyTx locks (tenant, kind, key) until the transaction ends. There may be
// no row to lock, so it takes an advisory lock, named by 64 bits of a hash. One
// in 10^19 pairs of keys shares a lock, and then only waits for each other. No
// other function uses the name.
func lockKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, p *Part) error {
	name := sha256.Sum256(append(tenantID[:], p.lockName()...))
	b := &pgx.Batch{}
	pg.QueueIsolation(b)
	b.Queue(reservationrows.EnterSQL)
	b.Queue(lockKeySQL, int64(binary.BigEndian.Uint64(name[:8])))
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("reservations: lock %s %s: %w", p.kind, p.key, err)
	}
	return nil
}

// holdPartTx makes the hold of a part, whose lock holdAllTx has taken.
func holdPartTx(ctx context.Context, tx pgx.Tx, by Actor, p *Part) (Reservation, error) {
	if err := p.checkCapacityTx(ctx, tx, by.TenantID); err != nil {
		return Reservation{}, err
	}
	now, err := pg.ReadClock(ctx, tx)
	if err != nil {
		return Reservation{}, err
	}
	r := Reservation{
		TenantID: by.TenantID, ReservationID: uuid.Must(uuid.NewV7()), ResourceKind: p.kind, ResourceKey: p.key,
		ResourceWindow: p.window, HolderID: cmp.Or(p.opts.HolderID, by.Actor.ID), Quantity: p.opts.Quantity, Status: Held,
		FirstHeldAt: now, HeldAt: now, ExpiresAt: now.Add(p.opts.TTL),
	}
	return r, reservationrows.HoldTx(ctx, tx, []reservationrows.Hold{{Reservation: r, Origin: by.Origin}})
}

// checkCapacityTx returns an *InsufficientError unless the capacity suffices
// for the part, whose key is locked.
//
// Capacity and Held are two statements, and a commit may end a hold and lower
// the capacity between them: commits do not take the key's lock. Under that
// lock no hold is added, so what is held only falls. That is the reason for the
// order:
//
//   - Held is read before Capacity. When Capacity was read, that much or less
//     was held, so the hold fits if it fits by the two readings. A later commit
//     lowers both.
//   - If it does not fit, a rejection needs two proofs: nothing was due after
//     Capacity was read, and Held, read again after that, is unchanged. Then it
//     was the same when Capacity was read, and no hold that counted was due.
//     Otherwise some hold ended in between, and both are read again.
//
// The number of rounds is bounded by the number of holds under the lock,
// because in each but the last a hold ended or was extended.
func (p *Part) checkCapacityTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID) error {
	held, err := p.heldTx(ctx, tx, tenantID)
	if err != nil {
		return err
	}
	for {
		capacity, err := p.capacity(ctx, tx, tenantID)
		if err != nil {
			return fmt.Errorf("reservations: capacity of %s %s: %w", p.kind, p.key, err)
		}
		if capacity-held >= p.opts.Quantity {
			return nil
		}
		noneDue, err := expireDueOfKeyTx(ctx, tx, tenantID, p)
		if err != nil {
			return err
		}
		before := held
		held, err = p.heldTx(ctx, tx, tenantID)
		if err != nil {
			return err
		}
		if noneDue && held == before {
			return &InsufficientError{
				Kind: p.kind, Key: p.key, Window: p.window, Requested: p.opts.Quantity, Available: max(capacity-held, 0), Capacity: capacity,
			}
		}
	}
}

func (p *Part) heldTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID) (int64, error) {
	held, err := p.held(ctx, tx, tenantID)
	if err != nil {
		return 0, fmt.Errorf("reservations: held of %s %s: %w", p.kind, p.key, err)
	}
	return held, nil
}

// expireBatch is how many due holds of one key a hold that comes up short
// expires per batch.
const expireBatch = 500

// expireDueOfKeyTx expires a batch of the due holds under the part's lock, or
// reports that there are no due holds. It waits for transactions that have one
// of them locked: after that, an extended hold is no longer due, and a released
// or swept one has given its units back.
func expireDueOfKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, p *Part) (none bool, err error) {
	due, err := reservationrows.DueOfWindow(ctx, tx, tenantID, p.kind, p.key, !p.disjoint, p.window, expireBatch)
	if err != nil || len(due) == 0 {
		return err == nil, err
	}
	locked, now, err := reservationrows.LockTx(ctx, tx, reservationrows.Refs(due))
	if err != nil {
		return false, err
	}
	_, err = expireTx(ctx, tx, locked, now)
	return false, err
}
