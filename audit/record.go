package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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

// writeSQL assigns the transaction its id before it draws the first audit_id;
// the subscriptions' horizon depends on that order. A column with one value for
// all entries is passed once, except target_id.
const writeSQL = `
INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, actor_id, correlation_id, reason, before, after)
SELECT coalesce(e.tenant_id, ($1::uuid[])[1]), e.target_id, coalesce(e.action, ($3::text[])[1]),
       coalesce(e.actor_kind, ($4::text[])[1]), nullif(coalesce(e.actor_id, ($5::text[])[1]), ''),
       nullif(coalesce(e.correlation_id, ($6::text[])[1]), ''), nullif(coalesce(e.reason, ($7::text[])[1]), ''),
       nullif(coalesce(e.before, ($8::text[])[1]), '')::jsonb, coalesce(e.after, ($9::text[])[1])::jsonb
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
     AS e (tenant_id, target_id, action, actor_kind, actor_id, correlation_id, reason, before, after)
WHERE ` + horizon.CurrentXID + ` IS NOT NULL`

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

// Queue adds one statement to b that records the entries in their order. The
// caller has locked every target's row when the batch runs.
func Queue(b *pgx.Batch, entries []Entry) {
	n := len(entries)
	if n == 0 {
		return
	}
	tenants, targets := make([][16]byte, n), make([][16]byte, n)
	text := make([]string, 7*n)
	column := func(i int) []string { return text[i*n : (i+1)*n : (i+1)*n] }
	action, kind, actor, correlation, reason, before, after := column(0), column(1), column(2), column(3), column(4), column(5), column(6)
	for i, e := range entries {
		tenants[i], targets[i] = e.TenantID, e.TargetID
		action[i], actor[i], correlation[i], reason[i] = e.Action, e.Actor.ID, e.CorrelationID, e.Reason
		kind[i] = cmp.Or(e.Actor.Kind, System().Kind)
		before[i], after[i] = string(e.Before), string(e.After)
	}
	b.Queue(writeSQL, pg.Collapse(tenants), targets, pg.Collapse(action), pg.Collapse(kind), pg.Collapse(actor),
		pg.Collapse(correlation), pg.Collapse(reason), pg.Collapse(before), pg.Collapse(after))
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
