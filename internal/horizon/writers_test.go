package horizon_test

import (
	"context"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// TestDrawnIsNeverAhead reads the last number drawn while another session
// draws, and then draws one itself, which must be higher: otherwise a low-water
// mark may pass a request that is admitted later. A plain SELECT of last_value
// is ahead about ten times in 300,000 readings. TestSQL rejects statements that
// contain one.
func TestDrawnIsNeverAhead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), `
CREATE SEQUENCE numbers;
CREATE FUNCTION ahead(readings integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    drawn bigint;
    ahead integer := 0;
BEGIN
    FOR reading IN 1..readings LOOP
        SELECT `+horizon.Drawn+` INTO drawn FROM numbers;
        IF nextval('numbers') <= drawn THEN
            ahead := ahead + 1;
        END IF;
    END LOOP;
    RETURN ahead;
END $$`); err != nil {
		t.Fatal(err)
	}
	var drawn int64
	if err := db.QueryRow(t.Context(), `SELECT `+horizon.Drawn+` FROM numbers`).Scan(&drawn); err != nil || drawn != 0 {
		t.Errorf("%d, %v of a sequence that was never used, want 0", drawn, err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group errgroup.Group
	group.Go(func() error {
		for ctx.Err() == nil {
			if _, err := db.Exec(t.Context(), `SELECT max(nextval('numbers')) FROM generate_series(1, 10000)`); err != nil {
				return err
			}
		}
		return nil
	})
	ahead := 0
	for range 300 {
		var found int
		if err := db.QueryRow(t.Context(), `SELECT ahead(1000)`).Scan(&found); err != nil {
			t.Fatal(err)
		}
		ahead += found
	}
	stop()
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if ahead > 0 {
		t.Errorf("%d readings of the last number drawn were not below the next one", ahead)
	}
}

// TestLowestWriterBeyond48Bits enters a sequence at both sides of each multiple
// of 2^48, of which the key of a lock has no more than the remainder. The nodes
// of a distributed Postgres begin their sequences there.
func TestLowestWriterBeyond48Bits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pgtest.Exec(t, db, `CREATE SEQUENCE numbers`)
	lowest := func() (number *int64) {
		t.Helper()
		if err := db.QueryRow(t.Context(), `SELECT `+horizon.LowestWriter+` FROM numbers`).Scan(&number); err != nil {
			t.Fatal(err)
		}
		return number
	}
	for _, drawn := range []int64{1, 1<<47 - 1, 1 << 47, 1<<48 - 2, 1<<48 - 1, 1 << 48, 3<<48 - 1, 3 << 48, 3<<48 + 1<<47, 1<<62 - 1, 1 << 62} {
		pgtest.Exec(t, db, `SELECT setval('numbers', $1)`, drawn)
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `SELECT `+horizon.EnterSequence+` FROM numbers`); err != nil {
			t.Fatal(err)
		}
		if number := lowest(); number == nil || *number != drawn {
			t.Errorf("%v is the lowest writer's number, want %d", number, drawn)
		}
		pgtest.Exec(t, db, `SELECT nextval('numbers') FROM generate_series(1, 5)`)
		if number := lowest(); number == nil || *number != drawn {
			t.Errorf("%v is the lowest writer's number after others have drawn, want %d", number, drawn)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if number := lowest(); number != nil {
			t.Errorf("%d is the number of a writer that has ended", *number)
		}
	}
}
