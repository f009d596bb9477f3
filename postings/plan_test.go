package postings

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// In a block of 100,000 units of which most are taken, each statement reads the
// units that it needs by an index, whether or not the table was analysed since
// it grew.
func TestLargeBlocksAreReadByIndex(t *testing.T) {
	t.Parallel()
	db, block, owner := pgtest.New(t), Block{uuid.New(), "hall"}, uuid.New()
	for _, fill := range []string{
		`INSERT INTO postings (tenant_id, block, unit_id, position) SELECT $1, 'hall', 's' || n, n FROM generate_series(1, 100000) AS n`,
		`UPDATE postings SET status = 'inactive', reservation_id = gen_random_uuid()
		 WHERE tenant_id = $1 AND position <= 60000 AND position % 100 <> 0`,
		`UPDATE postings SET status = 'pending_inactive', reservation_id = gen_random_uuid() WHERE tenant_id = $1 AND position BETWEEN 60001 AND 70000`,
	} {
		pgtest.Exec(t, db, fill, block.TenantID)
	}
	pgtest.Exec(t, db, `UPDATE postings SET reservation_id = $2 WHERE tenant_id = $1 AND position BETWEEN 60001 AND 60004`, block.TenantID, owner)
	ids := []string{"s90000", "s90001", "s90002", "s90003"}
	for _, known := range []string{"before it is analysed", "once it is analysed"} {
		for name, statement := range map[string]struct {
			sql  string
			args []any
			most int // blocks that it reads or writes
		}{
			"the first 4":           {lockFirstSQL, []any{block.TenantID, "hall", 4}, 40},
			"the first 4, not wait": {lockFirstFreeSQL, []any{block.TenantID, "hall", 4}, 40},
			"a run of 4":            {lockRunSQL, []any{block.TenantID, "hall", 4, 90001}, 40},
			"count owned":           {countOwnedSQL, []any{block.TenantID, "hall", ids, owner}, 60},
		} {
			tx, err := db.Begin(t.Context())
			pgtest.Must(t, err)
			if plan, read := explain(t, tx, statement.sql, statement.args); read > statement.most {
				t.Errorf("%s, %s reads %d blocks:\n%s", known, name, read, plan)
			}
			pgtest.Must(t, tx.Rollback(t.Context()))
		}
		pgtest.Exec(t, db, `VACUUM (ANALYZE) postings`)
	}
}

// explain runs the statement and returns its plan and how many blocks it read.
func explain(t *testing.T, tx pgx.Tx, sql string, args []any) (plan string, blocks int) {
	t.Helper()
	pgtest.Must(t, tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&plan))
	var top []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	pgtest.Must(t, json.Unmarshal([]byte(plan), &top))
	return plan, top[0].Plan.Hit + top[0].Plan.Read
}
