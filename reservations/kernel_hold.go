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
)

// Ask is what a hold asks for.
type Ask[K, W any] struct {
	Key    K
	Window W
	// Quantity is in units, 1 or more.
	Quantity int64
	// TTL is how long the hold lasts, at least a millisecond; the kernel's lifetime cap bounds it.
	TTL time.Duration
	// HolderID is who the units are for, by a name of the caller's; the actor's id when empty.
	HolderID string
}

// Hold sets units aside until the TTL is over and returns a handle to end the hold with.
//
// Errors: *InsufficientError, *SerializationError, ErrInvalid, what the resource returned, or why the database did not
// answer: then nothing was held, except that the fate of a COMMIT can be unknown. Such a hold ends by its TTL.
func (k *Kernel[K, W]) Hold(ctx context.Context, by Actor, ask Ask[K, W]) (*Handle, error) {
	handles, err := HoldAll(ctx, k.db, by, k.Part(ask))
	if err != nil {
		return nil, err
	}
	return handles[0], nil
}

// HoldTx is Hold in the caller's transaction, which must be READ COMMITTED (else ErrIsolation). It takes the lock of
// (tenant, kind, key) until the transaction ends. After an *InsufficientError the transaction can go on.
func (k *Kernel[K, W]) HoldTx(ctx context.Context, tx pgx.Tx, by Actor, ask Ask[K, W]) (*Handle, error) {
	handles, err := HoldAllTx(ctx, tx, by, k.Part(ask))
	if err != nil {
		return nil, err
	}
	return handles[0], nil
}

// Part is one of several holds that are made together, made by Kernel.Part.
type Part struct {
	kind, key, window string
	quantity          int64
	ttl               time.Duration
	holderID          string
	disjoint          bool
	capacity, held    func(context.Context, pgx.Tx) (int64, error)
	observe           func(context.Context, string) func(error)
	err               error // why it can't be asked for
}

// Part makes an ask of this kernel one of several that are held together; see HoldAll.
func (k *Kernel[K, W]) Part(ask Ask[K, W]) Part {
	p := Part{
		kind: k.resource.Kind(), quantity: ask.Quantity, ttl: min(ask.TTL, k.config.LifetimeMax).Truncate(time.Microsecond),
		holderID: ask.HolderID, disjoint: k.disjoint, observe: k.config.Observe,
		capacity: func(ctx context.Context, tx pgx.Tx) (int64, error) {
			return k.resource.Capacity(ctx, tx, ask.Key, ask.Window)
		},
		held: func(ctx context.Context, tx pgx.Tx) (int64, error) {
			return k.resource.Held(ctx, tx, ask.Key, ask.Window)
		},
	}
	p.key, p.window, p.err = canonicalPair(ask.Key, ask.Window)
	switch {
	case p.err != nil:
	case ask.Quantity < 1 || ask.Quantity > quantityMax:
		p.err = fmt.Errorf("reservation: hold %d units: want 1 to %d: %w", ask.Quantity, int64(quantityMax), ErrInvalid)
	case ask.TTL < time.Millisecond:
		p.err = fmt.Errorf("reservation: hold for %s: want at least a millisecond: %w", ask.TTL, ErrInvalid)
	case len(ask.HolderID) > KeyMax || !plain(ask.HolderID):
		p.err = fmt.Errorf("reservation: hold for a holder of %d bytes: want at most %d, of UTF-8 without NUL: %w", len(ask.HolderID), KeyMax, ErrInvalid)
	}
	return p
}

const (
	quantityMax = 1 << 53
	partsMax    = 64
)

// HoldAll holds several parts, of one or of several kernels, all or nothing, and returns their handles in the order of
// the parts. It takes 1 to 64 parts. Locks are taken in sorted order, so two such calls can't deadlock.
//
// Errors: Hold's, for the first part that was rejected in sorted order.
func HoldAll(ctx context.Context, db *pgxpool.Pool, by Actor, parts ...Part) (handles []*Handle, err error) {
	err = observeParts(ctx, parts, func() error {
		return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			handles, err = holdAllTx(ctx, tx, by, parts)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return handles, nil
}

// observeParts runs a hold and tells the observer of each part.
func observeParts(ctx context.Context, parts []Part, run func() error) error {
	done := make([]func(error), 0, len(parts))
	for i := range parts {
		if parts[i].observe != nil {
			done = append(done, parts[i].observe(ctx, "hold"))
		}
	}
	err := run()
	for _, tell := range done {
		tell(err)
	}
	return err
}

// HoldAllTx is HoldAll in the caller's transaction, within a savepoint: after an error of the parts' own the transaction
// can go on, and holds nothing of them.
func HoldAllTx(ctx context.Context, tx pgx.Tx, by Actor, parts ...Part) (handles []*Handle, err error) {
	err = observeParts(ctx, parts, func() error {
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

// holdAllTx makes the holds, in a transaction or a savepoint that is rolled back after an error.
func holdAllTx(ctx context.Context, tx pgx.Tx, by Actor, parts []Part) ([]*Handle, error) {
	if len(parts) < 1 || len(parts) > partsMax {
		return nil, fmt.Errorf("reservation: hold %d parts: want 1 to %d: %w", len(parts), partsMax, ErrInvalid)
	}
	order := make([]int, len(parts))
	for i := range parts {
		if parts[i].err != nil {
			return nil, parts[i].err
		}
		if parts[i].capacity == nil {
			return nil, fmt.Errorf("reservation: hold a part that no kernel made: %w", ErrInvalid)
		}
		order[i] = i
	}
	if err := by.check(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(parts[a].sortKey(), parts[b].sortKey()) })
	ctx = context.WithValue(ctx, tenantKey{}, by.TenantID)
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
		handles[i] = newHandle(r)
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

const isolationSQL = `SELECT current_setting('transaction_isolation')`

// lockKeyTx takes the turn of (tenant, kind, key) until the transaction ends. There may be no row to lock, so the lock is
// an advisory one, named by 64 bits of a hash: two keys share it once in 10^19 pairs, and then only wait for each other.
// This is the one place that knows.
func lockKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, p *Part) error {
	name := sha256.Sum256(append(tenantID[:], p.lockName()...))
	var isolation string
	b := &pgx.Batch{}
	b.Queue(isolationSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&isolation) })
	b.Queue(lockKeySQL, int64(binary.BigEndian.Uint64(name[:8])))
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("reservation: lock %s %s: %w", p.kind, p.key, err)
	}
	if isolation != "read committed" {
		return ErrIsolation
	}
	return nil
}

// holdPartTx holds one part under its lock. What it asks the resource is asked in statements after the lock, whose
// snapshots see everything that earlier holders of the lock have committed.
func holdPartTx(ctx context.Context, tx pgx.Tx, by Actor, p *Part) (Reservation, error) {
	capacity, err := p.capacity(ctx, tx)
	if err != nil {
		return Reservation{}, fmt.Errorf("reservation: capacity of %s %s: %w", p.kind, p.key, err)
	}
	for noneDue := false; ; {
		held, err := p.held(ctx, tx)
		if err != nil {
			return Reservation{}, fmt.Errorf("reservation: held of %s %s: %w", p.kind, p.key, err)
		}
		if capacity-held >= p.quantity {
			break
		}
		if noneDue { // none of what was counted, because nothing was due before it was counted
			return Reservation{}, &InsufficientError{
				Kind: p.kind, Key: p.key, Requested: p.quantity, Available: max(capacity-held, 0), Capacity: capacity,
			}
		}
		if noneDue, err = reclaimKeyTx(ctx, tx, by.TenantID, p); err != nil {
			return Reservation{}, err
		}
	}
	var now time.Time
	if err := tx.QueryRow(ctx, clockSQL).Scan(&now); err != nil {
		return Reservation{}, fmt.Errorf("reservation: read the clock: %w", err)
	}
	r := Reservation{
		TenantID: by.TenantID, ReservationID: uuid.Must(uuid.NewV7()), ResourceKind: p.kind, ResourceKey: p.key,
		ResourceWindow: p.window, HolderID: p.holderID, Quantity: p.quantity, Status: Held,
		FirstHeldAt: now, HeldAt: now, ExpiresAt: now.Add(p.ttl),
	}
	if r.HolderID == "" {
		r.HolderID = by.Actor.ID
	}
	return r, HoldTx(ctx, tx, []Hold{{Reservation: r, Origin: by.Origin}})
}

// reclaimBatch is how many due holds of one key are expired in one go by a hold that came up short.
const reclaimBatch = 500

// dueOfTurnSQL is dueOfKeySQL for what one turn guards: all of the key, or one window of it.
const dueOfTurnSQL = `
SELECT ` + columns + `
FROM reservations r
WHERE r.tenant_id = $1 AND r.resource_kind = $2 AND r.resource_key = $3 AND r.status = 'held'
  AND r.expires_at <= (SELECT clock_timestamp()) AND ($4 OR coalesce(r.resource_window, '') = $5)
ORDER BY r.expires_at
LIMIT $6`

// reclaimKeyTx expires a batch of the holds under the part's lock that are past their deadline, or reports that there are
// none. It waits for whoever works on one of them: a hold that was being extended is not due any more, one that was being
// released or swept has given its units back.
func reclaimKeyTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, p *Part) (none bool, err error) {
	due, err := collect(ctx, tx, "due "+p.key, dueOfTurnSQL, tenantID, p.kind, p.key, !p.disjoint, p.window, reclaimBatch)
	if err != nil || len(due) == 0 {
		return err == nil, err
	}
	locked, now, err := LockTx(ctx, tx, refsOf(due))
	if err != nil {
		return false, err
	}
	return false, expireTx(ctx, tx, locked, now)
}

// Handle makes a handle for a hold that was made elsewhere, or whose handle was used in a transaction that was rolled
// back.
//
// Errors: ErrNotFound if the tenant has no such reservation of this kind.
func (k *Kernel[K, W]) Handle(ctx context.Context, tenantID, reservationID uuid.UUID) (*Handle, error) {
	r, err := Get(ctx, k.db, tenantID, reservationID)
	if err == nil && r.ResourceKind != k.resource.Kind() {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return newHandle(r), nil
}
