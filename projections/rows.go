package projections

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// place names a row.
type place struct {
	name string
	Key
}

// row is a stored state. A version of 0 means that there is none.
type row struct {
	state             json.RawMessage
	version, position int64
	// refused is what events that could not be folded have cost in successive
	// runs, in bytes of JSON.
	refused int64
	parked  *parking // nil if the key is not parked
}

// parking is why a key is parked: its state lacks the events from the audit id
// on. It is empty, and the row has no state, if it is read under the lock.
type parking struct {
	from  int64
	cause error
}

// empty reports whether the row is not to be stored.
func (r *row) empty() bool { return r.version == 0 && r.parked == nil }

// compare is the order in which rows are locked: by tenant, name and key, each
// by its bytes. openSQL has the same.
func (p place) compare(other place) int {
	return cmp.Or(bytes.Compare(p.TenantID[:], other.TenantID[:]), cmp.Compare(p.name, other.name), cmp.Compare(p.Key.Key, other.Key.Key))
}

// sortedKeys returns the keys of one projection in the order of their locks.
func sortedKeys[V any](of map[Key]V) []Key {
	return slices.SortedFunc(maps.Keys(of), func(a, b Key) int { return place{"", a}.compare(place{"", b}) })
}

// openSQL makes the missing rows and locks the existing ones, in one pass over
// the sorted keys. The ON CONFLICT update locks the row and, because its
// condition is false, writes nothing. A row that it makes has version 0, and is
// written or deleted in the same transaction.
const openSQL = `
INSERT INTO projection_snapshots AS p (tenant_id, projection_name, key, state, version)
SELECT k.tenant_id, k.projection_name, k.key, 'null', 0
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS k (tenant_id, projection_name, key)
ORDER BY k.tenant_id, k.projection_name COLLATE "C", k.key COLLATE "C"
ON CONFLICT (tenant_id, projection_name, key) DO UPDATE
SET version = p.version
WHERE false`

// readSQL is a separate statement after the lock, so that its snapshot has all
// that was committed before.
const readSQL = `
SELECT k.place, CASE WHEN p.parked_at IS NULL THEN p.state END, p.version, p.position, p.refused_bytes, p.parked_at IS NOT NULL
FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS k (tenant_id, projection_name, key, place)
JOIN projection_snapshots p
    ON p.tenant_id = k.tenant_id AND p.projection_name = k.projection_name AND p.key = k.key
LIMIT $4`

const writeSQL = `
UPDATE projection_snapshots p
SET state = w.state::json, version = w.version, position = w.position, updated_at = clock_timestamp(),
    refused_bytes = 0, parked_at = NULL, parked_audit_id = NULL, parked_reason = NULL
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[])
     AS w (tenant_id, projection_name, key, state, version, position)
WHERE p.tenant_id = w.tenant_id AND p.projection_name = w.projection_name AND p.key = w.key`

// markSQL follows writeSQL for the few rows with events that could not be folded.
const markSQL = `
UPDATE projection_snapshots p
SET refused_bytes = m.refused_bytes, parked_at = CASE WHEN m.reason IS NOT NULL THEN clock_timestamp() END,
    parked_audit_id = m.audit_id, parked_reason = m.reason
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[])
     AS m (tenant_id, projection_name, key, refused_bytes, audit_id, reason)
WHERE p.tenant_id = m.tenant_id AND p.projection_name = m.projection_name AND p.key = m.key`

const deleteSQL = `
DELETE FROM projection_snapshots p
USING unnest($1::uuid[], $2::text[], $3::text[]) AS d (tenant_id, projection_name, key)
WHERE p.tenant_id = d.tenant_id AND p.projection_name = d.projection_name AND p.key = d.key`

// openTx locks the rows, and makes those that are missing. before, if not nil,
// adds statements that run first. The transaction must be READ COMMITTED.
func openTx(ctx context.Context, tx pgx.Tx, places []place, before func(*pgx.Batch)) ([]row, error) {
	tenants, names, keys := columns(places)
	rows := make([]row, len(places))
	b := &pgx.Batch{}
	if before != nil {
		before(b)
	}
	b.Queue(openSQL, tenants, names, keys)
	found := 0
	b.Queue(readSQL, tenants, names, keys, len(places)).Query(func(result pgx.Rows) error {
		var at int64
		var r row
		var parked bool
		_, err := pgx.ForEachRow(result, []any{&at, (*[]byte)(&r.state), &r.version, &r.position, &r.refused, &parked}, func() error {
			rows[at-1] = r
			if parked {
				rows[at-1].parked = &parking{}
			}
			r.state = nil // the next row gets its own bytes
			found++
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("lock %d states: %w", len(places), err)
	}
	if found != len(places) {
		return nil, fmt.Errorf("lock %d states: found %d", len(places), found)
	}
	return rows, nil
}

// writeTx writes the rows, whose locks the transaction has, and deletes the empty
// ones.
func writeTx(ctx context.Context, tx pgx.Tx, places []place, rows []row) error {
	if len(places) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	var written, deleted []place
	var states []string
	var versions, positions []int64
	var refused marks
	for i := range rows {
		r := &rows[i]
		if r.empty() {
			deleted = append(deleted, places[i])
			continue
		}
		written = append(written, places[i])
		states, versions, positions = append(states, cmp.Or(string(r.state), "null")), append(versions, r.version), append(positions, r.position)
		if r.refused > 0 || r.parked != nil {
			refused.add(places[i], r)
		}
	}
	if len(written) > 0 {
		tenants, names, keys := columns(written)
		b.Queue(writeSQL, tenants, names, keys, states, versions, positions).Exec(pg.Reached(len(written), "the write of states"))
	}
	refused.queue(b)
	if len(deleted) > 0 {
		tenants, names, keys := columns(deleted)
		b.Queue(deleteSQL, tenants, names, keys).Exec(pg.Reached(len(deleted), "the deletion of states"))
	}
	return tx.SendBatch(ctx, b).Close()
}

// marks are the rows with events that could not be folded.
type marks struct {
	at      []place
	refused []int64
	from    []*int64
	reason  []*string
}

// reasonMax is how many bytes of an error are stored as the reason.
const reasonMax = 1000

func (m *marks) add(at place, r *row) {
	var from *int64
	var reason *string
	if r.parked != nil {
		text := r.parked.cause.Error()
		text = strings.ReplaceAll(strings.ToValidUTF8(text[:min(len(text), reasonMax)], "\uFFFD"), "\x00", "\uFFFD") // what a column can hold
		from, reason = &r.parked.from, &text
	}
	m.at, m.refused, m.from, m.reason = append(m.at, at), append(m.refused, r.refused), append(m.from, from), append(m.reason, reason)
}

func (m *marks) queue(b *pgx.Batch) {
	if len(m.at) > 0 {
		tenants, names, keys := columns(m.at)
		b.Queue(markSQL, tenants, names, keys, m.refused, m.from, m.reason).Exec(pg.Reached(len(m.at), "the marks of states"))
	}
}

func columns(places []place) (tenants [][16]byte, names, keys []string) {
	tenants, names, keys = make([][16]byte, len(places)), make([]string, len(places)), make([]string, len(places))
	for i, p := range places {
		tenants[i], names[i], keys[i] = p.TenantID, p.name, p.Key.Key
	}
	return tenants, names, keys
}

const getSQL = `
SELECT p.state
FROM projection_snapshots p
WHERE p.tenant_id = $1 AND p.projection_name = $2 AND p.key = $3 AND p.version > 0`

// keysSQL pages through the keys of a projection.
const keysSQL = `
SELECT p.tenant_id, p.key
FROM projection_snapshots p
WHERE p.projection_name = $1 AND (p.tenant_id, p.key) > ($2, $3)
ORDER BY p.tenant_id, p.key
LIMIT $4`

// readCommitted are the options of this package's own transactions, whatever
// the default of the database is.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
