package verify_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/verify"
)

// oneMore breaks stock_reserved.
const oneMore = `UPDATE inventory_stocks SET reserved = reserved + 1`

// The second connection has the snapshot of the first, even if it connects
// after a change that was committed in between.
func TestRunOnTwoConnections(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := pgtest.Open(t, url)
	fill(t, db, 25_000)
	changed := make(chan struct{})
	var opened atomic.Int32
	two := poolOf(t, url, 2, func(context.Context, *pgx.ConnConfig) error {
		if opened.Add(1) > 1 {
			<-changed
		}
		return nil
	})
	first := true
	report, err := verify.Run(t.Context(), two, verify.Config{Progress: func(verify.Progress) {
		if !first {
			return
		}
		first = false
		_, err := db.Exec(t.Context(), oneMore)
		pgtest.Must(t, err)
		close(changed)
		pgtest.Until(t, "two connections work", func() bool {
			return pgtest.Int(t, db, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL AND backend_type = 'client backend'`) > 1
		})
	}})
	pgtest.Must(t, err)
	if !report.OK {
		t.Errorf("a change after the snapshot is seen: %s", report.Summary())
	}
	if report, err = verify.Run(t.Context(), two, verify.Config{}); err != nil || report.OK {
		t.Errorf("the change is not seen by the next run: %s, %v", report.Summary(), err)
	}
}

// A run makes all checks on one connection if there is no other.
func TestRunOnOneConnection(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := pgtest.Open(t, url)
	fill(t, db, 1000)
	one := poolOf(t, url, 1, nil)
	report, err := verify.Run(t.Context(), one, verify.Config{})
	pgtest.Must(t, err)
	if !report.OK || len(report.Checks) < 40 {
		t.Errorf("%s", report.Summary())
	}
	_, err = db.Exec(t.Context(), oneMore)
	pgtest.Must(t, err)
	if report, err = verify.Run(t.Context(), one, verify.Config{}); err != nil || report.OK {
		t.Errorf("a wrong sum was not found: %s, %v", report.Summary(), err)
	}
}

func poolOf(t *testing.T, url string, conns int32, connecting func(context.Context, *pgx.ConnConfig) error) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	pgtest.Must(t, err)
	config.MaxConns, config.BeforeConnect = conns, connecting
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	t.Cleanup(pool.Close)
	return pool
}
