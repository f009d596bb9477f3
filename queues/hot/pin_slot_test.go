package hot_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

const lockSlotSQL = `SELECT FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE`

// moves are the verbs that edit a hot variant under the lock of its slot.
var moves = map[string]func(b *lanetest.Bench, tx pgx.Tx) error{
	"pin": func(b *lanetest.Bench, tx pgx.Tx) error {
		return hot.PinTx(b.TB.Context(), tx, b.Bell, b.Tenant, "shoe")
	},
	"unpin": func(b *lanetest.Bench, tx pgx.Tx) error {
		return hot.UnpinTx(b.TB.Context(), tx, b.Bell, b.Tenant, "shoe")
	},
	"expel": func(b *lanetest.Bench, tx pgx.Tx) error {
		return hot.ExpelTx(b.TB.Context(), tx, b.Bell, b.Tenant, "shoe")
	},
	"lock": func(b *lanetest.Bench, tx pgx.Tx) error {
		return hot.LockSlotsTx(b.TB.Context(), tx, b.Tenant, []string{"shoe"})
	},
}

// While a verb waits for a variant's slot, the variant is moved to another one: the verb gives the slot back that it waited
// for and waits for the other one, whose owner may be deciding the variant's requests at this moment.
func TestMovedWhileItsSlotIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := lanetest.New(t, requests.Hot, hot.NewLane)
			b.Stock("shoe", 1)
			was := b.Int(`SELECT slot FROM hot_variants`)
			is := (was + 1) % 4
			owners := map[int64]pgx.Tx{}
			for _, slot := range []int64{was, is} {
				owner, err := b.DB.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := owner.Exec(t.Context(), lockSlotSQL, slot); err != nil {
					t.Fatal(err)
				}
				owners[slot] = owner
			}
			moved := make(chan error, 1)
			go func() {
				moved <- pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error { return move(b, tx) })
			}()
			b.Blocked()
			// it left its slot and was promoted to another one
			if _, err := owners[was].Exec(t.Context(), `UPDATE hot_variants SET slot = $1, state = 'hot', pinned = true`, is); err != nil {
				t.Fatal(err)
			}
			if err := owners[was].Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			// the slot that it left is free again while the verb waits for the other one
			const freeSQL = `
				SELECT count(*) FROM (SELECT FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE SKIP LOCKED) AS free
				WHERE EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`
			for deadline := time.Now().Add(10 * time.Second); b.Int(freeSQL, was) == 0; {
				if time.Now().After(deadline) {
					t.Error("it does not wait for the slot that the variant has now")
					break
				}
			}
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

// onFirst calls then before the first statement with the text in it is sent.
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

// A variant becomes hot in another slot after a verb has locked its slot and read it again: the verb edits it under the lock
// of the slot that it has.
func TestPromotedBeforeTheEdit(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]string{"pin": "INSERT INTO hot_variants", "unpin": "UPDATE hot_variants", "expel": "UPDATE hot_variants"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := lanetest.New(t, requests.Hot, hot.NewLane)
			b.Stock("shoe", 1)
			was := b.Int(`SELECT slot FROM hot_variants`)
			is := (was + 1) % 4
			if _, err := b.DB.Exec(t.Context(), `DELETE FROM hot_variants`); err != nil {
				t.Fatal(err)
			}
			config := b.DB.Config()
			config.ConnConfig.Tracer = &onFirst{text: edit, then: func() {
				const promoteSQL = `INSERT INTO hot_variants (tenant_id, variant_id, slot, state, pinned) VALUES ($1, 'shoe', $2, 'hot', true)`
				if _, err := b.DB.Exec(t.Context(), promoteSQL, b.Tenant, is); err != nil {
					t.Error(err)
				}
			}}
			db, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				if err := moves[name](b, tx); err != nil {
					return err
				}
				const freeSQL = `SELECT count(*) FROM (SELECT FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE SKIP LOCKED) AS free`
				if n := b.Int(freeSQL, was); n != 1 {
					t.Error("the slot that the variant is not in is locked still")
				}
				if n := b.Int(freeSQL, is); n != 0 {
					t.Error("the slot that the variant is in is not locked")
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			state := "leaving"
			if name == "pin" {
				state = "hot"
			}
			if n := b.Int(`SELECT count(*) FROM hot_variants WHERE slot = $1 AND state = $2`, is, state); n != 1 {
				t.Errorf("%d variants in slot %d that are %s, want 1", n, is, state)
			}
		})
	}
}

// A snapshot that is older than a move shows the variant where it was.
func TestMovesNeedReadCommitted(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Hot, hot.NewLane)
	b.Stock("shoe", 1)
	for name, move := range moves {
		for level, want := range map[pgx.TxIsoLevel]error{
			pgx.ReadCommitted: nil, pgx.RepeatableRead: requests.ErrIsolation, pgx.Serializable: requests.ErrIsolation,
		} {
			err := pgx.BeginTxFunc(t.Context(), b.DB, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error { return move(b, tx) })
			if !errors.Is(err, want) {
				t.Errorf("%s at %s: %v, want %v", name, level, err, want)
			}
		}
	}
}
