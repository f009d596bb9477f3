package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/auditrows"
	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/pg"
)

// Actor is who made a transition. The zero value is the system.
type Actor struct {
	// Kind is user, system, job or anonymous.
	Kind string
	// ID names the actor within its kind: a key's prefix, a job's name. Empty
	// for the system and for anonymous.
	ID string
}

// User is a caller known by id: a person or an API key.
func User(id string) Actor { return Actor{Kind: "user", ID: id} }

// System is Holdfast itself, acting for no caller.
func System() Actor { return Actor{Kind: "system"} }

// Job is a scheduled or background job, by name.
func Job(name string) Actor { return Actor{Kind: "job", ID: name} }

// Anonymous is a caller who gave no name.
func Anonymous() Actor { return Actor{Kind: "anonymous"} }

// Origin is who asked for a transition, why, and under which correlation id.
// Every verb carries one.
type Origin struct {
	Actor         Actor
	CorrelationID string
	Reason        string
}

// Entry is one transition to be recorded.
type Entry struct {
	TenantID uuid.UUID
	// TargetID is the row that changed: a reservation's or a request's id, or
	// TargetOf for a target whose key is text.
	TargetID uuid.UUID
	// Action is the target's kind and the transition, joined by a dot:
	// "reservation.held".
	Action string
	Origin
	// Before is the target's state ahead of the transition, nil if it did not
	// exist; After what it became.
	Before, After json.RawMessage
	// Reservation is written in place of both. It is nil in a [Record], which
	// has the states that follow from it.
	Reservation *auditrows.Reservation
}

// Record is an entry as it is stored in the log.
type Record struct {
	Entry
	// AuditID grows in the order of what happened to one target. It gives no
	// order between targets.
	AuditID   int64
	CreatedAt time.Time
}

// TargetOf names a target whose own key is text (a variant's stock, a lane) by
// the UUIDv5 of its tenant, kind and key.
func TargetOf(tenantID uuid.UUID, kind, key string) uuid.UUID {
	return uuid.NewSHA1(tenantID, []byte(kind+"\x00"+key))
}

// entryColumns are the columns that every entry has; entryValues reads them from
// arguments that pg.Collapse has shortened, except target_id.
const (
	entryColumns = `tenant_id, target_id, action, actor_kind, actor_id, correlation_id, reason`
	entryValues  = `coalesce(e.tenant_id, ($1::uuid[])[1]), e.target_id, coalesce(e.action, ($3::text[])[1]),
       coalesce(e.actor_kind, ($4::text[])[1]), nullif(coalesce(e.actor_id, ($5::text[])[1]), ''),
       nullif(coalesce(e.correlation_id, ($6::text[])[1]), ''), nullif(coalesce(e.reason, ($7::text[])[1]), '')`
	entryArrays = `$1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]`
)

// writeSQL and writeReservationsSQL assign the transaction its id before they
// draw the first audit_id; the subscriptions' horizon depends on that order.
const (
	writeSQL = `
INSERT INTO audit_log (` + entryColumns + `, before, after)
SELECT ` + entryValues + `,
       nullif(coalesce(e.before, ($8::text[])[1]), '')::jsonb, nullif(coalesce(e.after, ($9::text[])[1]), '')::jsonb
FROM unnest(` + entryArrays + `, $8::text[], $9::text[]) AS e (` + entryColumns + `, before, after)
WHERE ` + horizon.CurrentXID + ` IS NOT NULL`

	writeReservationsSQL = `
INSERT INTO audit_log (` + entryColumns + `, resource_kind, resource_key, holder_id, quantity, expires_at,
                       release_reason, resource_window, checkout_id, unit_ids, before)
SELECT ` + entryValues + `,
       coalesce(e.resource_kind, ($8::text[])[1]), coalesce(e.resource_key, ($9::text[])[1]), coalesce(e.holder_id, ($10::text[])[1]),
       coalesce(e.quantity, ($11::bigint[])[1]), coalesce(e.expires_at, ($12::timestamptz[])[1]),
       nullif(coalesce(e.release_reason, ($13::text[])[1]), ''), nullif(coalesce(e.resource_window, ($14::text[])[1]), ''),
       nullif(coalesce(e.checkout_id, ($15::uuid[])[1]), '00000000-0000-0000-0000-000000000000'),
       nullif(coalesce(e.unit_ids, ($16::text[])[1]), '')::jsonb, nullif(coalesce(e.before, ($17::text[])[1]), '')::jsonb
FROM unnest(` + entryArrays + `, $8::text[], $9::text[], $10::text[], $11::bigint[], $12::timestamptz[],
            $13::text[], $14::text[], $15::uuid[], $16::text[], $17::text[])
     AS e (` + entryColumns + `, resource_kind, resource_key, holder_id, quantity, expires_at,
           release_reason, resource_window, checkout_id, unit_ids, before)
WHERE ` + horizon.CurrentXID + ` IS NOT NULL`
)

// WriteTx records the entries in tx, in their order. The caller has locked
// every target's row. It reads nothing, so it is correct at every isolation
// level.
func WriteTx(ctx context.Context, tx pgx.Tx, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	Queue(b, entries)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("write %d audit entries: %w", len(entries), err)
	}
	return nil
}

// Queue adds to b what records the entries in their order: one statement for
// each run of transitions of reservations, or of anything else. So a caller does
// not alternate them. It has locked every target's row when the batch runs.
func Queue(b *pgx.Batch, entries []Entry) {
	for len(entries) > 0 {
		ofReservations := entries[0].Reservation != nil
		n := slices.IndexFunc(entries, func(e Entry) bool { return (e.Reservation != nil) != ofReservations })
		if n < 0 {
			n = len(entries)
		}
		if ofReservations {
			queueReservations(b, entries[:n])
		} else {
			queueStates(b, entries[:n])
		}
		entries = entries[n:]
	}
}

// columnsOf are the columns that every entry has.
func columnsOf(entries []Entry) []any {
	n := len(entries)
	tenants, targets := make([][16]byte, n), make([][16]byte, n)
	column := texts(n, 5)
	action, kind, actor, correlation, reason := column(), column(), column(), column(), column()
	for i := range entries {
		e := &entries[i]
		tenants[i], targets[i] = e.TenantID, e.TargetID
		action[i], actor[i], correlation[i], reason[i] = e.Action, e.Actor.ID, e.CorrelationID, e.Reason
		kind[i] = cmp.Or(e.Actor.Kind, System().Kind)
	}
	return append(make([]any, 0, 17), pg.Collapse(tenants), targets, pg.Collapse(action), pg.Collapse(kind), pg.Collapse(actor),
		pg.Collapse(correlation), pg.Collapse(reason))
}

// texts returns a function that returns a new column of n texts. It can be
// called as often as there are columns.
func texts(n, columns int) func() []string {
	all := make([]string, columns*n)
	return func() []string {
		column := all[:n:n]
		all = all[n:]
		return column
	}
}

// queueStates writes entries with JSON.
func queueStates(b *pgx.Batch, entries []Entry) {
	column := texts(len(entries), 2)
	before, after := column(), column()
	for i := range entries {
		before[i], after[i] = string(entries[i].Before), string(entries[i].After)
	}
	b.Queue(writeSQL, append(columnsOf(entries), pg.Collapse(before), pg.Collapse(after))...)
}

// queueReservations writes transitions of reservations.
func queueReservations(b *pgx.Batch, entries []Entry) {
	n := len(entries)
	column := texts(n, 7)
	kind, key, holder, release, window, units, before := column(), column(), column(), column(), column(), column(), column()
	quantities, deadlines, checkouts := make([]int64, n), make([]time.Time, n), make([][16]byte, n)
	for i := range entries {
		r := entries[i].Reservation
		kind[i], key[i], holder[i], release[i], window[i] = r.ResourceKind, r.ResourceKey, r.HolderID, r.ReleaseReason, r.ResourceWindow
		units[i], before[i] = r.UnitIDs, string(r.Before)
		quantities[i], deadlines[i], checkouts[i] = r.Quantity, r.ExpiresAt, r.CheckoutID
	}
	b.Queue(writeReservationsSQL, append(columnsOf(entries), pg.Collapse(kind), pg.Collapse(key), pg.Collapse(holder),
		pg.Collapse(quantities), pg.Collapse(deadlines), pg.Collapse(release), pg.Collapse(window), pg.Collapse(checkouts),
		pg.Collapse(units), pg.Collapse(before))...)
}

const pruneSQL = `
WITH piece AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, a.audit_id, a.created_at < clock_timestamp() - $1::interval AS old
    FROM audit_log a
    WHERE a.audit_id <= coalesce((SELECT min(position) FROM audit_subscriptions), 9223372036854775807)
    ORDER BY a.audit_id
    LIMIT $2
), old AS MATERIALIZED (
    SELECT a.tenant_id, a.target_id, a.audit_id
    FROM piece
    JOIN audit_log a USING (tenant_id, target_id, audit_id)
    WHERE piece.old
    FOR UPDATE OF a SKIP LOCKED
), deleted AS (
    DELETE FROM audit_log a
    USING old
    WHERE a.tenant_id = old.tenant_id AND a.target_id = old.target_id AND a.audit_id = old.audit_id
    RETURNING a.audit_id
)
SELECT count(*) FROM deleted`

// Prune reads the limit oldest records, deletes those that were written longer
// ago than retention, and returns how many. It never deletes a record that a
// subscription has not been delivered: call Unsubscribe for a subscription that
// is no longer read. Several calls may run at once; each skips the rows that
// another one is deleting.
func Prune(ctx context.Context, db Querier, retention time.Duration, limit int) (int64, error) {
	rows, _ := db.Query(ctx, pruneSQL, retention, limit)
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("prune the record: %w", err)
	}
	return n, nil
}
