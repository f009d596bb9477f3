package main

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/pgtest"
)

func TestWalPostMeasure(t *testing.T) {
	t.Parallel()
	m := walPostMeasure([]float64{1800, 2000, 1900}, []float64{900, 1000, 1000}, []float64{2100}, []float64{5000})
	want := "bytes per request over HTTP, 64 clients; over transaction, 16 connections; " +
		"2100 bytes when all clients wait for the outcome, 5000 when there is one that waits"
	if m.Value != 2 || m.Ours != 1900 || m.Other != 1000 || m.Note != want || math.Abs(m.Spread-0.05) > 1e-9 {
		t.Errorf("%+v", m)
	}
}

// A job that is not finished is waited for; a finished one is not.
func TestAwaitJobs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if err := awaitJobs(t.Context(), db); err != nil {
		t.Fatalf("without a job: %v", err)
	}
	const insert = `INSERT INTO river.river_job (args, kind, max_attempts, state) VALUES ('{}', 'wake', 1, 'available')`
	if _, err := db.Exec(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := awaitJobs(ctx, db); err == nil {
		t.Error("a job that is to be worked was not waited for")
	}
	if _, err := db.Exec(t.Context(), `UPDATE river.river_job SET state = 'completed', finalized_at = now()`); err != nil {
		t.Fatal(err)
	}
	if err := awaitJobs(t.Context(), db); err != nil {
		t.Errorf("with a finished job: %v", err)
	}
}
