package main

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// A fill replaces what was decided, and nothing else.
func TestNeighbourQueueIsToppedUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	q := &neighbourQueue{db: db, tenant: uuid.New(), depth: 1001}
	if _, err := db.Exec(t.Context(), fillStocksSQL, q.tenant, 1, plenty); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ decided, before, rows int64 }{{0, 0, 1001}, {400, 601, 1401}, {400, 1001, 1401}} {
		if _, err := db.Exec(t.Context(), `UPDATE inventory_stocks SET reserved = $2 WHERE tenant_id = $1`, q.tenant, step.decided); err != nil {
			t.Fatal(err)
		}
		before, err := q.fill(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var rows int64
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM reservation_requests WHERE tenant_id = $1`, q.tenant).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if before != step.before || rows != step.rows {
			t.Errorf("%d decided: %d were queued before, %d rows, want %d and %d", step.decided, before, rows, step.before, step.rows)
		}
	}
}

func TestNeighbourMeasure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		least         float64
		late, refused int64
		note          string
		valid         bool
	}{
		{"kept up", 500, 0, 0, "ours and other in ms; the neighbour had 500 of 1000 queued or more", true},
		{"late and refused", 900, 2, 3, "ours and other in ms; the neighbour had 900 of 1000 queued or more; " +
			"2 calls were not decided in 20 s; 3 calls were refused", true},
		{"not kept up", 499, 0, 0, "ours and other in ms; the neighbour had 499 of 1000 queued or more; " +
			"invalid: the neighbour's backlog was decided faster than it was kept up", false},
	} {
		m := neighbourMeasure(1000, []float64{5}, []float64{10}, []float64{1000, c.least}, c.late, c.refused)
		if m.Note != c.note || m.Valid != c.valid || (m.OK != nil) != c.valid || m.Ours != 10 || m.Other != 5 {
			t.Errorf("%s: %+v, want %t and %q", c.name, m, c.valid, c.note)
		}
	}
}

// Rows that are queued while a drain runs keep its low-water mark from passing
// them until they are committed, as those of admission do.
func TestInsertQueuedDelaysTheMark(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	writer, err := openPool(t.Context(), db.Config().ConnString(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	insert := func() error { return insertQueued(t.Context(), writer, uuid.New(), lanes.Hot, 0, 1, toHot) }
	if err := insert(); err != nil { // prepares the statements, which the lock would stop
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }() // it only locks
	if _, err := tx.Exec(t.Context(), `LOCK TABLE reservation_requests`); err != nil {
		t.Fatal(err)
	}
	inserted := make(chan error, 1)
	go func() { inserted <- insert() }()
	const lowest = `SELECT ` + horizon.LowestWriter + ` IS NOT NULL FROM reservation_requests_sequence_seq`
	err = await(t.Context(), 10*time.Second, 5*time.Millisecond, func() (missing string, err error) {
		var held bool
		if err := db.QueryRow(t.Context(), lowest).Scan(&held); err != nil || held {
			return "", err
		}
		return "no writer is under way while rows are inserted", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-inserted; err != nil {
		t.Fatal(err)
	}
}
