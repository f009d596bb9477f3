package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
)

// Two transactions that move the same variants in opposite orders do not
// deadlock: one waits for the end of the other.
func TestPinsOfSeveral(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	forth := []string{"a", "b", "c", "d", "e", "f"}
	back := slices.Clone(forth)
	slices.Reverse(back)
	var pinning sync.WaitGroup
	for i, order := range [][]string{forth, back, forth, back} {
		wish := lanes.WishHot
		if i > 1 {
			wish = lanes.WishAuto
		}
		var wishes []lanes.Placement
		for _, variant := range order {
			wishes = append(wishes, lanes.Placement{VariantID: variant, Wish: wish})
		}
		pinning.Go(func() {
			for range 30 {
				err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
					return lanes.ForcePlaceTx(t.Context(), tx, b.Inserter, b.Tenant, wishes)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	pinning.Wait()
	if n := b.Int(`SELECT count(DISTINCT slot) FROM hot_variants`); n < 2 {
		t.Errorf("the variants have %d slots in all, so the test proves nothing", n)
	}
}

// makeSlots makes slots 0 to 4.
func makeSlots(b *testkit.Fixture) {
	b.Exec(`INSERT INTO lane_slots (lane, slot) SELECT 'hot', generate_series(0, 4) ON CONFLICT DO NOTHING`)
}

const lockSlotSQL = `SELECT FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE`

// moves are the moves of a hot variant, which are made under the lock of its
// slot.
var moves = map[string]func(b *testkit.Fixture, tx pgx.Tx) error{
	"pin": move(lanes.WishHot), "unpin": move(lanes.WishAuto), "force normal": move(lanes.WishNormal),
}

func move(wish lanes.Wish) func(b *testkit.Fixture, tx pgx.Tx) error {
	return func(b *testkit.Fixture, tx pgx.Tx) error {
		return lanes.ForcePlaceTx(b.TB.Context(), tx, b.Inserter, b.Tenant, []lanes.Placement{{VariantID: "shoe", Wish: wish}})
	}
}

// While a verb waits for the lease of a variant's slot, the variant is moved to
// another slot. The verb releases the first slot and waits for the other one,
// whose owner may be deciding the variant's requests.
func TestMovedWhileItsSlotIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.New(t, lanes.Hot)
			b.Stock("shoe", 1)
			makeSlots(b)
			was := b.Int(`SELECT slot FROM hot_variants`)
			is := (was + 1) % 4
			owners := map[int64]pgx.Tx{}
			for _, slot := range []int64{was, is} {
				owners[slot] = b.Lock(lockSlotSQL, slot)
			}
			moved := make(chan error, 1)
			go func() {
				moved <- pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error { return move(b, tx) })
			}()
			b.Blocked()
			// It leaves its slot and is promoted to another one.
			if _, err := owners[was].Exec(t.Context(), `UPDATE hot_variants SET slot = $1, state = 'hot', pinned = true`, is); err != nil {
				t.Fatal(err)
			}
			if err := owners[was].Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			// The slot that it left is free again while the verb waits for the
			// other one.
			const freeSQL = `
				SELECT count(*) FROM (SELECT FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE SKIP LOCKED) AS free
				WHERE EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`
			b.Until("it waits for the slot that the variant has now", func() bool { return b.Int(freeSQL, was) > 0 })
			if err := owners[is].Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-moved; err != nil {
				t.Error(err)
			}
			if n := b.Int(`SELECT count(*) FROM hot_variants WHERE slot = $1`, is); n != 1 {
				t.Errorf("%d variants in slot %d, want 1", n, is)
			}
		})
	}
}

// onFirst calls then before the first statement that contains the text is sent.
type onFirst struct {
	text string
	once sync.Once
	then func()
}

func (o *onFirst) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if strings.Contains(query.SQL, o.text) {
		o.once.Do(o.then)
	}
	return ctx
}

func (*onFirst) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A variant becomes hot after a pin has read that it is not hot. The pin then
// changes it under the lock of its slot.
func TestPromotedBeforeTheEdit(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Normal)
	b.Stock("shoe", 1)
	makeSlots(b)
	const slot = 3
	config := b.DB.Config()
	config.ConnConfig.Tracer = &onFirst{text: "INSERT INTO hot_variants", then: func() {
		const promoteSQL = `INSERT INTO hot_variants (tenant_id, variant_id, slot, state, pinned) VALUES ($1, 'shoe', $2, 'leaving', false)`
		if _, err := b.DB.Exec(t.Context(), promoteSQL, b.Tenant, slot); err != nil {
			t.Error(err)
		}
	}}
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if err := moves["pin"](b, tx); err != nil {
			return err
		}
		const freeSQL = `SELECT count(*) FROM (SELECT FROM lane_slots WHERE lane = 'hot' AND slot >= 0 AND slot <> $1 FOR NO KEY UPDATE SKIP LOCKED) AS free`
		if n := b.Int(freeSQL, slot); n != 4 {
			t.Errorf("%d of the other slots are free, want all 4", n)
		}
		if n := b.Int(`SELECT count(*) FROM (SELECT FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE SKIP LOCKED) AS free`, slot); n != 0 {
			t.Error("the variant's slot is not locked")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := b.Int(`SELECT count(*) FROM hot_variants WHERE slot = $1 AND state = 'entering' AND pinned`, slot); n != 1 {
		t.Errorf("%d pinned variants in slot %d, want 1", n, slot)
	}
}

// Each variant has a separate slot, even if many concurrent transactions make
// variants hot. A slot that a variant left is used for another one.
func TestSlotPerVariant(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	var pins sync.WaitGroup
	const variants = 40
	for i := range variants {
		pins.Go(func() {
			if err := lanes.Pin(t.Context(), b.DB, b.Inserter, b.Tenant, fmt.Sprint("v", i)); err != nil {
				t.Error(err)
			}
		})
	}
	pins.Wait()
	if n := b.Int(`SELECT count(DISTINCT slot) FROM hot_variants`); n != variants {
		t.Errorf("%d variants have %d slots", variants, n)
	}
	most := b.Int(`SELECT max(slot) FROM lane_slots WHERE lane = 'hot'`)
	lane := b.Lane(queues.LaneConfig{})
	for i := range 10 {
		if err := lanes.Unpin(t.Context(), b.DB, b.Inserter, b.Tenant, fmt.Sprint("v", i)); err != nil {
			t.Fatal(err)
		}
	}
	b.Until("they have left", func() bool {
		b.Tick(lane)
		return b.Int(`SELECT count(*) FROM hot_variants`) == variants-10
	})
	for i := range 10 {
		b.Pin(fmt.Sprint("new", i))
	}
	if n, now := b.Int(`SELECT count(DISTINCT slot) FROM hot_variants`), b.Int(`SELECT max(slot) FROM lane_slots WHERE lane = 'hot'`); n != variants || now != most {
		t.Errorf("%d variants have %d slots up to %d, want one each up to %d", variants, n, now, most)
	}
}

// A snapshot taken before a move shows the variant in its old slot.
func TestMovesNeedReadCommitted(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 1)
	for name, move := range moves {
		for level, want := range map[pgx.TxIsoLevel]error{
			pgx.ReadCommitted: nil, pgx.RepeatableRead: pg.ErrIsolation, pgx.Serializable: pg.ErrIsolation,
		} {
			err := pgx.BeginTxFunc(t.Context(), b.DB, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error { return move(b, tx) })
			if !errors.Is(err, want) {
				t.Errorf("%s at %s: %v, want %v", name, level, err, want)
			}
		}
	}
}
