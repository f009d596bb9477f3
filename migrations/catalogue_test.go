package migrations_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// catalogueSQL lists all that a migration can leave in the database, one line a
// thing, without what differs between two databases of the same schema (object
// ids, statistics, a sequence's value).
const catalogueSQL = `
WITH mine AS (
    SELECT oid, nspname
    FROM pg_namespace
    WHERE nspname <> 'information_schema'
        AND NOT starts_with(nspname, 'pg_')
)
SELECT 'schema ' || nspname AS line
FROM mine
UNION ALL
SELECT format('relation %s.%s kind %s options %s', nspname, relname, relkind, reloptions)
FROM pg_class
JOIN mine ON mine.oid = relnamespace
UNION ALL
SELECT format('column %s.%s.%s %s %s null %s identity %s default %s storage %s', nspname, relname, attnum, attname,
    format_type(atttypid, atttypmod), NOT attnotnull, attidentity, pg_get_expr(adbin, adrelid), attstorage)
FROM pg_attribute
JOIN pg_class ON pg_class.oid = attrelid
JOIN mine ON mine.oid = relnamespace
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0 AND NOT attisdropped
UNION ALL
SELECT format('constraint %s.%s %s', nspname, conname, pg_get_constraintdef(pg_constraint.oid))
FROM pg_constraint
JOIN mine ON mine.oid = connamespace
UNION ALL
SELECT format('index %s', pg_get_indexdef(indexrelid))
FROM pg_index
JOIN pg_class ON pg_class.oid = indexrelid
JOIN mine ON mine.oid = relnamespace
UNION ALL
SELECT format('sequence %s.%s start %s step %s cache %s', schemaname, sequencename, start_value, increment_by, cache_size)
FROM pg_sequences
UNION ALL
SELECT format('type %s.%s %s', nspname, typname, typtype)
FROM pg_type
JOIN mine ON mine.oid = typnamespace
UNION ALL
SELECT format('label %s.%s', enumtypid::regtype, enumlabel)
FROM pg_enum
UNION ALL
SELECT format('function %s.%s %s', nspname, proname, md5(prosrc))
FROM pg_proc
JOIN mine ON mine.oid = pronamespace
UNION ALL
SELECT format('trigger %s on %s', tgname, tgrelid::regclass)
FROM pg_trigger
WHERE NOT tgisinternal
ORDER BY line`

// catalogue is the schema of a database as lines of text.
func catalogue(t *testing.T, db *pgxpool.Pool) []string {
	t.Helper()
	return column(t, db, catalogueSQL)
}

func column(t *testing.T, db *pgxpool.Pool, sql string) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("read the catalogue: %v", err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("read the catalogue: %v", err)
	}
	return lines
}

// lonely is a pool of a single connection to the same database.
func lonely(t *testing.T, db *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := db.Config()
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("open a pool: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}
