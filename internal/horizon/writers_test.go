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
