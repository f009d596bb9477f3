package pgtest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
)

// failing records the message with which a test failed.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, polls := time.Now(), 0
		Until(t, "three polls", func() bool { polls++; return polls == 3 })
		if took := time.Since(began); took != 2*pollEvery {
			t.Errorf("three polls took %s", took)
		}
		f := &failing{}
		Until(f, "it holds", func() bool { return false })
		if f.text != "not within 5m0s: it holds" || time.Since(began) != 2*pollEvery+pollWithin {
			t.Errorf("%q after %s", f.text, time.Since(began))
		}
	})
}

func TestUntilBlocked(t *testing.T) {
	t.Parallel()
	db := New(t)
	holder, err := db.Begin(t.Context())
	Must(t, err)
	const lockSQL = `LOCK TABLE tenants IN ACCESS EXCLUSIVE MODE`
	_, err = holder.Exec(t.Context(), lockSQL)
	Must(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), lockSQL)
			return err
		})
	}()
	UntilBlocked(t, db, 1)
	Must(t, holder.Rollback(t.Context()))
	Must(t, <-ended)
	if n := Int(t, db, lockWaitsSQL); n != 0 {
		t.Errorf("%d sessions wait for a lock", n)
	}
	f := &failing{TB: t}
	Exec(f, db, `SELECT nothing`)
	if f.text == "" {
		t.Error("a statement that fails did not fail the test")
	}
}
