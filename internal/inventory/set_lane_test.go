package inventory_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/testkit"
)

// beforeFirst calls do before the first batch that contains the text is sent.
type beforeFirst struct {
	text string
	once sync.Once
	do   func()
}

func (f *beforeFirst) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		if strings.Contains(query.SQL, f.text) {
			f.once.Do(f.do)
		}
	}
	return ctx
}

func (*beforeFirst) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*beforeFirst) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (*beforeFirst) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*beforeFirst) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A caller sets a stock's lane to the one in which its variant is. Another
// transaction moves the variant after its lane was read, and before its stock
// is locked. In the end the variant is in the lane that its stock has.
func TestMovedBeforeItsStockIsLocked(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 5)
	config := b.DB.Config()
	unpinned := false
	config.ConnConfig.Tracer = &beforeFirst{text: "inventory_stocks", do: func() {
		unpinned = true
		if err := lanes.Unpin(t.Context(), b.DB, b.Inserter, b.Tenant, "shoe"); err != nil {
			t.Error(err)
		}
	}}
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	patch := inventory.StockPatch{Stock: new(int64(7)), Lane: new(lanes.WishHot)}
	stock, in, err := inventory.SetInLane(t.Context(), db, b.Inserter, b.Tenant, "shoe", patch, audit.Origin{})
	if err != nil || stock.Stock != 7 || stock.Lane != lanes.WishHot || !in.IsPlaced(lanes.WishHot) {
		t.Errorf("set to %+v in %+v, %v", stock, in, err)
	}
	if n := b.Int(`SELECT count(*) FROM hot_variants WHERE pinned AND state = 'entering'`); n != 1 || !unpinned {
		t.Errorf("%d variants are pinned, want 1; unpinned meanwhile: %t", n, unpinned)
	}
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'stock.set' AND before IS NOT NULL`); n != 1 {
		t.Errorf("%d records of one change", n)
	}
}

// An invalid stock moves no variant, and the caller's transaction is usable
// afterwards.
func TestRefusedStockMovesNothing(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		for want, patch := range map[string]inventory.StockPatch{
			"stock is required": {Lane: new(lanes.WishHot)},
			"must be auto":      {Stock: new(int64(1)), Lane: new(lanes.Wish("warm"))},
		} {
			_, _, err := inventory.SetInLaneTx(t.Context(), tx, b.Inserter, b.Tenant, "shoe", patch, audit.Origin{})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q in it", err, want)
			}
		}
		_, in, err := inventory.SetInLaneTx(t.Context(), tx, b.Inserter, b.Tenant, "sock", inventory.StockPatch{Stock: new(int64(1))}, audit.Origin{})
		if in.TakesNew() {
			t.Errorf("a stock without a lane is in %+v", in)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := b.Int(`SELECT (SELECT count(*) FROM hot_variants) * 10 + (SELECT count(*) FROM inventory_stocks)`); n != 1 {
		t.Errorf("ten times the moved variants and the stocks are %d, want 1", n)
	}
}

// A move needs statements that see commits after the transaction began. A stock
// without a lane can be set at every isolation level.
func TestSetStockNeedsReadCommitted(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	set := func(level pgx.TxIsoLevel, wish *lanes.Wish) error {
		return pgx.BeginTxFunc(t.Context(), b.DB, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			patch := inventory.StockPatch{Stock: new(int64(1)), Lane: wish}
			_, _, err := inventory.SetInLaneTx(t.Context(), tx, b.Inserter, b.Tenant, "shoe", patch, audit.Origin{})
			return err
		})
	}
	if err := set(pgx.RepeatableRead, new(lanes.WishHot)); !errors.Is(err, lanes.ErrIsolation) {
		t.Errorf("%v, want %v", err, lanes.ErrIsolation)
	}
	if err := set(pgx.RepeatableRead, nil); err != nil {
		t.Errorf("without a lane: %v", err)
	}
}
