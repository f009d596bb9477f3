package reservations

import (
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

	"github.com/holdfast/holdfast/internal/isolation"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// HoldOpts says how many units a hold sets aside, for how long, and for whom.
type HoldOpts struct {
	// Quantity is in units, 1 or more. Required.
	Quantity int64
	// TTL is how long the hold lasts: from a millisecond to Config.LifetimeMax. Required.
	TTL time.Duration
	// HolderID is who the units are for, by a name of the caller's: a cart, a booking. Default: the actor's id.
	HolderID string
}

// Hold sets units aside until the TTL is over and returns a handle to end the hold with. A resource without windows is
// held with NoWindow{}.
//
// Errors: *InsufficientError; ErrLifetimeExceeded for a TTL above Config.LifetimeMax; *SerializationError; ErrInvalid; what
// the resource returned; or the database's. After an error nothing is held, except that the outcome of a COMMIT can be
// unknown. Such a hold ends by its TTL.
func (k *Kernel[K, W]) Hold(ctx context.Context, by Actor, key K, window W, opts HoldOpts) (*Handle, error) {
	handles, err := HoldAll(ctx, k.db, by, k.Part(key, window, opts))
	if err != nil {
		return nil, err
	}
	return handles[0], nil
}

// HoldTx is Hold in the caller's transaction, in a savepoint: after an error of its own (those of Hold) the transaction can
// go on. The hold is seen by others when the transaction commits.
//
// It takes the lock of (tenant, kind, key) until the transaction ends. Two transactions that call HoldTx for the same keys
// in different orders wait for each other, and Postgres ends one of them (SQLSTATE 40P01): call it in one order of
// (kind, key) everywhere, or once with HoldAllTx, or roll back and repeat. Hold first, then end other holds.
//
// A hold that comes up short also locks the holds of the key that are past their deadline. Another transaction that ends
// several of them (CommitAll, ReleaseAll, or one …Tx verb after the other) can wait for it in a circle, with the same
// error. No order of calls prevents that: roll back and repeat.
//
// It is right at READ COMMITTED only, and returns ErrIsolation at another level.
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
	err               error // why it can't be asked for
}

// Part makes a hold of this kernel one of several that are made together; see HoldAll.
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
	p.opts.TTL = opts.TTL.Truncate(time.Microsecond) // a row holds no more
	if p.key, p.window, p.err = canonicalPair(key, window); p.err == nil {
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
	case len(o.HolderID) > KeyMax || !plain(o.HolderID):
		return fmt.Errorf("%w: hold for a holder of %d bytes, want at most %d, of UTF-8 without NUL", ErrInvalid, len(o.HolderID), KeyMax)
	}
	return nil
}

const (
	quantityMax = 1 << 53
	partsMax    = 64
)

// HoldAll makes several holds, of one kernel or of several, all or none, and returns their handles in the order of the
// parts. It takes 1 to 64 parts. The locks of the keys are taken in sorted order, so two such calls cannot deadlock. With a
// transaction that ends several holds which are past their deadline, a call can: it is repeated, see Kernel.
//
// Errors: those of Hold, for the first part that was rejected in sorted order.
func HoldAll(ctx context.Context, db *pgxpool.Pool, by Actor, parts ...Part) (handles []*Handle, err error) {
	err = observed(ctx, "hold", partObservers(parts), func() error {
		return inTx(ctx, db, func(tx pgx.Tx) (err error) {
			handles, err = holdAllTx(ctx, tx, by, parts)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return handles, nil
}

// HoldAllTx is HoldAll in the caller's transaction, in a savepoint; see Kernel.HoldTx, also for its deadlocks.
func HoldAllTx(ctx context.Context, tx pgx.Tx, by Actor, parts ...Part) (handles []*Handle, err error) {
	err = observed(ctx, "hold", partObservers(parts), func() error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
			handles, err = holdAllTx(ctx, tx, by, parts)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return handles, nil
}

func partObservers(parts []Part) []observer {
	all := make([]observer, len(parts))
	for i := range parts {
		all[i] = parts[i].observe
	}
	return all
}

// holdAllTx makes the holds, in a transaction or a savepoint that is rolled back after an error.
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

// lockName is what a part's turn is taken by: the key, and the window where windows are disjoint.
func (p *Part) lockName() string {
	if p.disjoint {
		return p.kind + "\x00" + p.key + "\x00" + p.window
	}
	return p.kind + "\x00" + p.key
}

func (p *Part) sortKey() string { return p.kind + "\x00" + p.key + "\x00" + p.window }

const lockKeySQL = `SELECT pg_advisory_xact_lock($1)`

// lockKeyTx takes the turn of (tenant, kind, key) until the transaction ends. There may be no row to lock, so the lock is
// an advisory one, named by 64 bits of a hash: two keys share it once in 10^19 pairs, and then only wait for each other.
// This is the one place that knows.
func lockKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, p *Part) error {
	name := sha256.Sum256(append(tenantID[:], p.lockName()...))
	b := &pgx.Batch{}
	isolation.Queue(b)
	b.Queue(lockKeySQL, int64(binary.BigEndian.Uint64(name[:8])))
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("reservation: lock %s %s: %w", p.kind, p.key, err)
	}
	return nil
}

// holdPartTx holds one part under its lock, which holdAllTx has taken.
func holdPartTx(ctx context.Context, tx pgx.Tx, by Actor, p *Part) (Reservation, error) {
	if err := p.roomTx(ctx, tx, by.TenantID); err != nil {
		return Reservation{}, err
	}
	now, err := reservationrows.Clock(ctx, tx)
	if err != nil {
		return Reservation{}, err
	}
	r := Reservation{
		TenantID: by.TenantID, ReservationID: uuid.Must(uuid.NewV7()), ResourceKind: p.kind, ResourceKey: p.key,
		ResourceWindow: p.window, HolderID: p.opts.HolderID, Quantity: p.opts.Quantity, Status: Held,
		FirstHeldAt: now, HeldAt: now, ExpiresAt: now.Add(p.opts.TTL),
	}
	if r.HolderID == "" {
		r.HolderID = by.Actor.ID
	}
	return r, reservationrows.HoldTx(ctx, tx, []reservationrows.Hold{{Reservation: r, Origin: by.Origin}})
}

// roomTx returns an *InsufficientError unless there is room for the part, whose lock is held.
//
// Capacity and Held are two statements, and a commit may end a hold and lower the capacity between them: commits do not
// take the key's lock. Under that lock no hold is added, so what is held only falls. Hence the order:
//
//   - Held is read before Capacity. What was held when Capacity was read is that much or less, so there is room if the
//     two readings leave room. A later commit takes a unit from both.
//   - If they leave none, a rejection needs two proofs: nothing was due after Capacity was read, and Held, read again
//     after that, is what it was. Then it was the same when Capacity was read, and no hold that counted was due.
//     Otherwise some hold ended in between, and both are read again.
//
// The number of rounds is bounded by the number of holds under the lock, because each but the last saw one end or being
// extended.
func (p *Part) roomTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID) error {
	held, err := p.heldTx(ctx, tx, tenantID)
	if err != nil {
		return err
	}
	for {
		capacity, err := p.capacity(ctx, tx, tenantID)
		if err != nil {
			return fmt.Errorf("reservation: capacity of %s %s: %w", p.kind, p.key, err)
		}
		if capacity-held >= p.opts.Quantity {
			return nil
		}
		noneDue, err := reclaimKeyTx(ctx, tx, tenantID, p)
		if err != nil {
			return err
		}
		before := held
		if held, err = p.heldTx(ctx, tx, tenantID); err != nil {
			return err
		}
		if noneDue && held == before {
			return &InsufficientError{
				Kind: p.kind, Key: p.key, Requested: p.opts.Quantity, Available: max(capacity-held, 0), Capacity: capacity,
			}
		}
	}
}

func (p *Part) heldTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID) (int64, error) {
	held, err := p.held(ctx, tx, tenantID)
	if err != nil {
		return 0, fmt.Errorf("reservation: held of %s %s: %w", p.kind, p.key, err)
	}
	return held, nil
}

// reclaimBatch is how many due holds of one key are expired in one go by a hold that came up short.
const reclaimBatch = 500

// reclaimKeyTx expires a batch of the holds under the part's lock that are past their deadline, or reports that there are
// none. It waits for whoever works on one of them: a hold that was being extended is not due any more, one that was being
// released or swept has given its units back.
func reclaimKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, p *Part) (none bool, err error) {
	due, err := reservationrows.DueOfWindow(ctx, tx, tenantID, p.kind, p.key, !p.disjoint, p.window, reclaimBatch)
	if err != nil || len(due) == 0 {
		return err == nil, err
	}
	locked, now, err := reservationrows.LockTx(ctx, tx, reservationrows.Refs(due))
	if err != nil {
		return false, err
	}
	return false, expireTx(ctx, tx, locked, now)
}
