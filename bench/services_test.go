package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/bench/load"
	"github.com/holdfast/holdfast/internal/lanes"
)

// A suite fails if its rows do not agree with the answers, or if they break
// what verify checks.
func TestSoldIsChecked(t *testing.T) {
	t.Parallel()
	g := newTestEnvironment(t)
	if err := g.reset(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	if err := g.queue(t.Context(), lanes.Hot, g.slot, 3, firstOf); err != nil {
		t.Fatal(err)
	}
	if _, err := serveLane(t.Context(), g.hot, g.slot, 1); err != nil {
		t.Fatal(err)
	}
	f := &deployment{db: g.db, tenant: g.tenant}
	if got, err := f.checkSold(t.Context(), baselines.Sold{Granted: 3}); err != nil || got.Granted != 3 {
		t.Errorf("3 holds: %+v, %v", got, err)
	}
	if _, err := f.checkSold(t.Context(), baselines.Sold{Granted: 3, Committed: 1}); err == nil {
		t.Error("a checkout that is not in the tables was not missed")
	}
	b := &bench{stderr: t.Output()}
	if err := b.invariant(t.Context(), g.db); err != nil {
		t.Errorf("valid rows: %v", err)
	}
	if _, err := g.db.Exec(t.Context(), `UPDATE inventory_stocks SET reserved = reserved + 1`); err != nil {
		t.Fatal(err)
	}
	if err := b.invariant(t.Context(), g.db); err == nil || !strings.Contains(err.Error(), "stock_reserved") {
		t.Errorf("a unit too many is reserved: %v, want stock_reserved", err)
	}
}

// A deadlock that Postgres has resolved fails the suite, whatever the outcome
// of its transactions.
func TestDeadlocksAreFound(t *testing.T) {
	t.Parallel()
	b := newTestBench(t)
	g, err := b.newEnvironment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	if err := g.reset(t.Context(), 2, false); err != nil {
		t.Fatal(err)
	}
	database := g.db.Config().ConnConfig.Database
	const lock = `SELECT FROM inventory_stocks WHERE variant_id = $1 FOR UPDATE`
	var both [2]pgx.Tx
	for i := range both {
		if both[i], err = g.db.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := both[i].Exec(t.Context(), lock, baselines.VariantID(i)); err != nil {
			t.Fatal(err)
		}
	}
	var crossing errgroup.Group
	for i, tx := range both {
		crossing.Go(func() error {
			_, err := tx.Exec(t.Context(), lock, baselines.VariantID(1-i))
			_ = tx.Rollback(t.Context()) // lets the other go on
			return err
		})
	}
	if err := crossing.Wait(); err == nil {
		t.Fatal("two transactions that wait for each other both went on")
	}
	g.close()
	if err := b.withoutDeadlocks(t.Context(), database); err == nil || !strings.Contains(err.Error(), "1 deadlocks") {
		t.Errorf("%v, want 1 deadlocks", err)
	}
}

func okAnswer(body string) load.Answer { return load.Answer{Status: http.StatusOK, Body: []byte(body)} }

// The mix has its documented shares, does not use holds that may have expired,
// and counts the calls that took effect.
func TestMixer(t *testing.T) {
	t.Parallel()
	m := &mixer{ttl: time.Hour}
	m.held = []heldCart{{toHot(), time.Now().Add(-31 * time.Minute)}}
	if call, _ := m.Next(); call.Verb != load.Add || len(m.held) != 0 {
		t.Errorf("without a cart that is held for sure: verb %d with %d carts, want an add", call.Verb, len(m.held))
	}
	// a caller so slow that it has no more than the cart of its last call
	m = &mixer{ttl: time.Hour}
	drawn := make(map[load.Verb]int)
	const draws = 20_000
	for range draws {
		call, more := m.Next()
		if !more || call.CartID == "" {
			t.Fatalf("call %+v, more %t", call, more)
		}
		drawn[call.Verb]++
		m.held = nil
		if call.Verb == load.Add {
			m.held = []heldCart{{call.Item, time.Now()}}
		}
	}
	for verb, percent := range map[load.Verb]int{load.Add: 60, load.Checkout: 25, load.Remove: 10, load.Set: 5} {
		if got, want := float64(drawn[verb])/draws, float64(percent)/100; got < want-0.03 || got > want+0.03 {
			t.Errorf("verb %d is %.3f of the calls, want %.2f", verb, got, want)
		}
	}
	m = &mixer{ttl: time.Hour}
	for _, c := range []struct {
		verb   load.Verb
		answer load.Answer
	}{
		{load.Add, okAnswer(`{"status":"done"}`)},
		{load.Set, okAnswer(`{"status":"done"}`)},
		{load.Checkout, okAnswer(`{"committed":[]}`)},
		{load.Checkout, load.Answer{Status: http.StatusConflict}},
		{load.Remove, okAnswer(`{"released":2,"cancelled":[]}`)},
		{load.Remove, okAnswer(`{"released":0,"cancelled":[]}`)},
		{load.Add, load.Answer{Status: http.StatusServiceUnavailable}},
	} {
		m.call.Verb = c.verb
		if err := m.Answered(c.answer); err != nil {
			t.Errorf("verb %d: %v", c.verb, err)
		}
	}
	if want := (baselines.Sold{Granted: 2, Committed: 1, Released: 1}); m.sold != want || m.adds != 1 || m.lapsed != 2 {
		t.Errorf("counted %+v with %d adds, %d lapsed, want %+v with 1 and 2", m.sold, m.adds, m.lapsed, want)
	}
}

// A request whose outcome is not known, or that was not granted, fails a
// session that waits for it.
func TestSessionsWantOutcomes(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]load.Answer{
		"not decided": {Status: http.StatusAccepted, Body: []byte(`{"status":"queued"}`)},
		"sold out":    okAnswer(`{"status":"failed","reason":"out_of_stock"}`),
	} {
		for _, session := range []load.Session{new(cycler), &mixer{ttl: time.Hour}} {
			if _, more := session.Next(); !more {
				t.Fatalf("%T has no calls", session)
			}
			if err := session.Answered(a); err == nil {
				t.Errorf("%T: %s was taken for an outcome that holds", session, name)
			}
		}
	}
	full := new(carts)
	full.put(itemsOf(1, toHot))
	last := &checkouter{carts: full}
	first, _ := last.Next()
	if err := last.Answered(load.Answer{Status: http.StatusServiceUnavailable}); err != nil {
		t.Fatal(err)
	}
	if again, more := last.Next(); !more || again != first {
		t.Errorf("after a refusal: %+v, want %+v again", again, first)
	}
	if err := last.Answered(load.Answer{Status: http.StatusConflict}); err == nil {
		t.Error("a cart that was not checked out was taken for one that was")
	}
}
