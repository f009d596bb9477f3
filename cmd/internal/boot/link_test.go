package boot

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// A connection that failed because of a silent database is replaced soon. The
// driver alone would count it for 15 s.
func TestSilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	wire := pgtest.NewWire(t, pgtest.URL(t))
	p, _ := newTestProgram(t, map[string]string{"DATABASE_URL": wire.URL})
	db, err := p.open(t.Context(), pool{name: "test", conns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	wire.Silence()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := db.Exec(ctx, "SELECT 1"); !pg.IsOutage(err) {
		t.Fatalf("a silent database: %v, want an outage", err)
	}
	wire.Speak()
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	if _, err := db.Exec(ctx, "SELECT 1"); err != nil {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
