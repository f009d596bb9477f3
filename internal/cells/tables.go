package cells

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// table is a table with rows of tenants.
type table struct {
	name string
	// live is a condition for rows that a worker of the new cell would touch, or
	// with which it would serve the tenant. They are copied last, in the
	// transaction that makes the tenant active there. Empty: none.
	live string
	// intake is the condition of a row with which a request of a caller begins,
	// which is refused as soon as the tenant is moving. Empty: none.
	intake string
	// undone is the condition of a row of what is under way. The tenant moves when
	// there is none. Empty: no row does.
	undone string
	// ours is true of a table whose rows are made again in the new cell, or are
	// not needed there: they are only deleted.
	ours bool

	// columns are read from the catalog. key are those of the primary key, and
	// drawn those that an identity column draws, which never change.
	columns, key, drawn []string
}

// always is the condition for all rows.
const always = "true"

// tables are the tables with rows of tenants, those of metered commands
// included, but tenants and tenant_state.
func tables() []table {
	return []table{
		{name: "stock_groups"},
		{name: "inventory_stocks"},
		{name: "kits"},
		{name: "allotments"},
		{name: "reservation_requests", live: "status NOT IN ('done', 'failed')", intake: "NEW.parent_id IS NULL", undone: "status IN ('queued', 'processing')"},
		{name: "waiting_requests", live: always},
		{name: "reservations"}, // a sweep leaves those of a tenant that is not active
		{name: "audit_log"},
		{name: "postings"},
		{name: "checkouts", live: "ended_at IS NULL", intake: "true", undone: "ended_at IS NULL AND status = 'finalizing'"},
		{name: "idempotency_keys"},
		{name: "projection_snapshots", live: always},
		{name: "expiring_tokens"},
		{name: "budget_scopes"},
		{name: "budget_ledger"},
		{name: "budget_rates"},
		{name: "command_keys", intake: "true", undone: "ended_at IS NULL"}, // their jobs do not move
		{name: keysTable}, // of no use there before the tenant is active
		{name: "hot_variants", ours: true},
		{name: "hot_signals", ours: true},
		{name: "hot_observations", ours: true},
		{name: "diverted_tenants", ours: true},
		{name: "live_tickets", ours: true},
	}
}

const columnsSQL = `
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attidentity <> '' AS drawn,
       coalesce(a.attnum = ANY (i.indkey::smallint[]), false) AS in_key
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.oid = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) AS name) AND c.relkind = 'r'
ORDER BY c.relname, a.attnum`

// readTables returns the tables that the cell has, with their columns, and the
// definition of all of them, which is equal in two cells of one version.
func (c Cell) readTables(ctx context.Context) (found []table, definition string, err error) {
	all := tables()
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	var name, column, kind string
	var drawn, inKey bool
	var text strings.Builder
	rows, _ := c.Pool.Query(ctx, columnsSQL, names) //nolint:rowserrcheck // ForEachRow checks it
	_, err = pgx.ForEachRow(rows, []any{&name, &column, &kind, &drawn, &inKey}, func() error {
		t := &all[slices.Index(names, name)]
		t.columns = append(t.columns, column)
		if drawn {
			t.drawn = append(t.drawn, column)
		}
		if inKey {
			t.key = append(t.key, column)
		}
		fmt.Fprintf(&text, "%s.%s %s\n", name, column, kind)
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("read the tables of the cell %s: %w", c.Name, err)
	}
	return slices.DeleteFunc(all, func(t table) bool { return t.columns == nil }), text.String(), nil
}

// moved are the tables whose rows are copied.
func moved(all []table) []table {
	return slices.DeleteFunc(slices.Clone(all), func(t table) bool { return t.ours })
}

// keySQL is the text of a row's key.
func (t *table) keySQL() string { return `ROW(t.` + strings.Join(t.key, `, t.`) + `)::text` }

// rowsSQL reads rows of the tenant $1 that fulfil a condition, as the text of
// their values. Rows that are live are left out without live.
func (t *table) rowsSQL(condition string, live bool) string {
	sql := `SELECT t::text FROM ` + t.name + ` t WHERE t.tenant_id = $1 AND ` + condition
	if t.live != "" && !live {
		sql += ` AND NOT (` + t.live + `)`
	}
	return sql
}

// changedSQL is rowsSQL of the rows that were written by a transaction from the
// one with the id $2 on, or all without one, and of those that are live.
//
// A row that was frozen long ago may seem to be new, and is copied again.
func (t *table) changedSQL(live bool) string {
	changed := `$2::text IS NULL OR age(t.xmin) <= age($2::text::xid8::xid)`
	if t.live != "" && live {
		changed += ` OR ` + t.live
	}
	return t.rowsSQL(`(`+changed+`)`, live)
}

// namedSQL is rowsSQL of the rows with the keys $2.
func (t *table) namedSQL() string { return t.rowsSQL(t.keySQL()+` = ANY ($2::text[])`, true) }

// hashesSQL reads the keys and the hashes of the rows of the tenant $1, in the
// order of the bytes of the keys.
func (t *table) hashesSQL(live bool) string {
	return `SELECT k, h FROM (` + strings.Replace(t.rowsSQL(`true`, live), `t::text`, t.keySQL()+` AS k, hashtextextended(t::text, 0) AS h`, 1) + `) AS hashed ORDER BY k COLLATE "C"`
}

// countSQL counts the rows of the tenant $1.
func (t *table) countSQL() string {
	return strings.Replace(t.rowsSQL(`true`, true), `t::text`, `count(*)`, 1)
}

// deleteSQL deletes the rows of the tenant $1 with the keys $2.
func (t *table) deleteSQL() string {
	return `DELETE FROM ` + t.name + ` t WHERE t.tenant_id = $1 AND ` + t.keySQL() + ` = ANY ($2::text[])`
}

// cleanSQL deletes up to $2 rows of the tenant $1.
func (t *table) cleanSQL() string {
	return `DELETE FROM ` + t.name + ` WHERE ctid = ANY (ARRAY(SELECT ctid FROM ` + t.name + ` WHERE tenant_id = $1 LIMIT $2)) AND tenant_id = $1`
}

// putSQL writes rows that rowsSQL has read, $1, over those that were copied
// earlier.
func (t *table) putSQL() string {
	var values, set []string
	for _, column := range t.columns {
		values = append(values, `(s.r).`+column)
		if !slices.Contains(t.key, column) && !slices.Contains(t.drawn, column) {
			set = append(set, column+` = excluded.`+column)
		}
	}
	update := `NOTHING`
	if len(set) > 0 {
		update = `UPDATE SET ` + strings.Join(set, `, `)
	}
	return `INSERT INTO ` + t.name + ` (` + strings.Join(t.columns, `, `) + `) OVERRIDING SYSTEM VALUE
SELECT ` + strings.Join(values, `, `) + `
FROM (SELECT x::` + t.name + ` AS r FROM unnest($1::text[]) AS x OFFSET 0) AS s
ON CONFLICT (` + strings.Join(t.key, `, `) + `) DO ` + update
}
