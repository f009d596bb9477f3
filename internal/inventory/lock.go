package inventory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Ref names a variant's stock.
type Ref struct {
	TenantID  uuid.UUID
	VariantID string
}

// counter is a stock row under its lock.
type counter struct {
	TenantID           uuid.UUID
	VariantID          string
	Stock, Reserved    int64
	Tracked, Backorder bool
	HoldTTLSeconds     *int32
	MaxPerCart         *int32
	NamedUnits         bool
	PreorderMax        *int64
	Sale               *Sale
	Waiting            bool
}

// bounded reports whether the units that can be held have a limit.
func (c *counter) bounded() bool { return !c.Backorder || c.PreorderMax != nil }

// capacity is how many units can be held, if that is bounded.
func (c *counter) capacity() int64 {
	if c.PreorderMax == nil {
		return c.Stock
	}
	return c.Stock + *c.PreorderMax
}

const lockSQL = `
SELECT s.tenant_id, s.variant_id, s.stock, s.reserved, s.tracked, s.backorder, s.hold_ttl_seconds, s.max_per_cart, s.named_units,
       s.preorder_max, s.sale, s.waiting
FROM inventory_stocks s
JOIN unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id) USING (tenant_id, variant_id)
ORDER BY s.tenant_id, s.variant_id
FOR NO KEY UPDATE OF s`

const lockUnlockedSQL = lockSQL + `
SKIP LOCKED`

const dueFrom = `s.due_from FROM inventory_stocks s WHERE s.tenant_id = wanted.tenant_id AND s.variant_id = wanted.resource_key`

// dueHoldsOf reads the due holds of variants whose units are then for sale, and
// dueOfAllotments those whose units go back to an allotment, from the due_from of
// their stocks on.
var (
	dueHoldsOf      = reservationrows.NewDueOfKeys(Kind, dueFrom, `NOT `+ofAllotment)
	dueOfAllotments = reservationrows.NewDueOfKeys(Kind, dueFrom, ofAllotment)
)

func dueLimit(ref Ref, limit int) reservationrows.DueLimit {
	return reservationrows.DueLimit{Resource: reservationrows.Resource{TenantID: ref.TenantID, ResourceKey: ref.VariantID}, Limit: limit}
}

// stocks are stock rows as they are under their locks, and a reading of the
// database's clock after the lock.
type stocks struct {
	counters map[Ref]*counter
	now      time.Time
}

// queue adds to b what locks the stocks of the refs with sql. The caller adds
// the reading of the clock.
func (s *stocks) queue(b *pgx.Batch, sql string, refs []Ref) {
	tenants, variants := splitRefs(refs)
	s.counters = make(map[Ref]*counter, len(refs))
	b.Queue(sql, tenants, variants).Query(func(rows pgx.Rows) error {
		locked, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[counter])
		for _, c := range locked {
			s.counters[Ref{c.TenantID, c.VariantID}] = c
		}
		return err
	})
}

func splitRefs(refs []Ref) (tenants [][16]byte, variants []string) {
	tenants, variants = make([][16]byte, len(refs)), make([]string, len(refs))
	for i, ref := range refs {
		tenants[i], variants[i] = ref.TenantID, ref.VariantID
	}
	return tenants, variants
}

// lockTx locks the stock rows of the refs, which must be distinct, in (tenant,
// variant) order, and then reads the database's clock. Until the transaction
// ends, no other transaction can make, commit, release or expire a hold on these
// variants. With lockUnlockedSQL it leaves out stocks that another transaction
// has locked, with lockSQL it waits for them.
//
// first adds statements before the lock.
func lockTx(ctx context.Context, tx pgx.Tx, sql string, refs []Ref, first ...func(*pgx.Batch)) (s stocks, err error) {
	b := &pgx.Batch{}
	for _, queue := range first {
		queue(b)
	}
	s.queue(b, sql, refs)
	pg.QueueClock(b, &s.now)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return stocks{}, fmt.Errorf("lock %d stocks: %w", len(refs), err)
	}
	return s, nil
}

const existingSQL = `
SELECT s.tenant_id, s.variant_id
FROM inventory_stocks s
JOIN unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id) USING (tenant_id, variant_id)`

// withLockedStock returns those of the refs that have a stock but no counter,
// because another transaction has the stock locked.
func withLockedStock(ctx context.Context, tx pgx.Tx, refs []Ref, counters map[Ref]*counter) (map[Ref]bool, error) {
	missing := slices.DeleteFunc(slices.Clone(refs), func(ref Ref) bool { return counters[ref] != nil })
	tenants, variants := splitRefs(missing)
	existing, err := pg.Select(ctx, tx, pgx.RowToStructByPos[Ref], existingSQL, tenants, variants)
	if err != nil {
		return nil, fmt.Errorf("read %d stocks: %w", len(variants), err)
	}
	locked := make(map[Ref]bool, len(existing))
	for _, ref := range existing {
		locked[ref] = true
	}
	return locked, nil
}

const (
	saveSQL    = `SAVEPOINT holdfast_stocks`
	undoSQL    = `ROLLBACK TO SAVEPOINT holdfast_stocks`
	releaseSQL = `RELEASE SAVEPOINT holdfast_stocks`
)

// holdTries is how often holdLock.lockTx waits for holds without a stock. After
// that it waits for them with the stocks.
const holdTries = 10

// holdLock locks stocks and then their holds in the caller's transaction. It
// waits for a hold only while it has no stock locked: if another transaction
// has locked one of the holds, it unlocks the stocks (ROLLBACK TO SAVEPOINT),
// waits, and starts again. So a hold that stays locked does not keep the other
// requests for its variant waiting.
type holdLock struct {
	variants []Ref
	// refs and pairs name the holds, as in reservationrows.QueueLock.
	refs  []reservationrows.Ref
	pairs []reservationrows.HolderKey
	// then, if not nil, adds what else is read under the locks.
	then func(*pgx.Batch)

	stocks
	held []reservations.Reservation
}

// lockTx locks all, and leaves the savepoint to be released by releaseSQL.
func (l *holdLock) lockTx(ctx context.Context, tx pgx.Tx) error {
	for range holdTries {
		var others []reservations.Reservation
		if err := l.sendTx(ctx, tx, func(b *pgx.Batch) {
			reservationrows.QueueTryLock(b, Kind, l.refs, l.pairs, func(locked, left []reservations.Reservation) { l.held, others = locked, left })
		}); err != nil || len(others) == 0 {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(undoSQL)
		reservationrows.QueueLock(b, Kind, reservationrows.Refs(others), nil)
		b.Queue(undoSQL)
		b.Queue(releaseSQL)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("wait for %d locked holds: %w", len(others), err)
		}
	}
	locked := new([]reservations.Reservation)
	err := l.sendTx(ctx, tx, func(b *pgx.Batch) { locked = reservationrows.QueueLock(b, Kind, l.refs, l.pairs) })
	l.held = *locked
	return err
}

// sendTx locks the stocks and, with lock, the holds.
func (l *holdLock) sendTx(ctx context.Context, tx pgx.Tx, lock func(*pgx.Batch)) error {
	b := &pgx.Batch{}
	b.Queue(saveSQL)
	l.queue(b, lockSQL, l.variants)
	if len(l.refs)+len(l.pairs) > 0 {
		lock(b)
	}
	pg.QueueClock(b, &l.now)
	if l.then != nil {
		l.then(b)
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("lock what is held: %w", err)
	}
	return nil
}

// A row's xmax is the last transaction that locked it. The row is free if it
// can be locked now. FOR SHARE, so that two such queries do not see each
// other's locks.
const (
	lockOwnersSQL = `
SELECT s.tenant_id, s.variant_id, s.xmax::text
FROM inventory_stocks s
JOIN unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id) USING (tenant_id, variant_id)`

	freeStocksSQL = `
SELECT s.tenant_id, s.variant_id
FROM inventory_stocks s
JOIN unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id) USING (tenant_id, variant_id)
FOR SHARE OF s SKIP LOCKED`
)

// LockOwners returns, for the stocks of the refs that other transactions have
// locked, a text that names the transaction. A stock that is free, or does not
// exist, is not in the map. LockOwners waits for no lock.
func LockOwners(ctx context.Context, db *pgxpool.Pool, refs []Ref) (map[Ref]string, error) {
	type lastLocked struct {
		Ref
		owner string
	}
	toLastLocked := func(row pgx.CollectableRow) (l lastLocked, err error) {
		return l, row.Scan(&l.TenantID, &l.VariantID, &l.owner)
	}
	tenants, variants := splitRefs(refs)
	b := &pgx.Batch{}
	locked := pg.Collect(b, toLastLocked, lockOwnersSQL, tenants, variants)
	free := pg.Collect(b, pgx.RowToStructByPos[Ref], freeStocksSQL, tenants, variants)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read who has locked %d stocks: %w", len(refs), err)
	}
	owners := make(map[Ref]string, len(*locked))
	for _, l := range *locked {
		owners[l.Ref] = l.owner
	}
	for _, ref := range *free {
		delete(owners, ref)
	}
	return owners, nil
}
