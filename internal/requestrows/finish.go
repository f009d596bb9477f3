package requestrows

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/requests"
)

// Querier reads: a pool, a connection or a transaction.
type Querier = audit.Querier

// execer writes without reading: a pool, a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

const finishSQL = `
UPDATE reservation_requests r
SET status = CASE WHEN coalesce(f.reason, ($4::text[])[1]) = '' THEN 'done' ELSE 'failed' END,
    reason = nullif(coalesce(f.reason, ($4::text[])[1]), ''), updated_at = $5, claim_expires_at = NULL
FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::text[]) AS f (tenant_id, request_id, claim_epoch, reason)
WHERE r.tenant_id = coalesce(f.tenant_id, ($1::uuid[])[1]) AND r.request_id = f.request_id
  AND r.claim_epoch = coalesce(f.claim_epoch, ($3::integer[])[1]) AND r.status IN ('queued', 'processing', 'waiting')`

// QueueFinish adds to b the statements that finish the requests, which the
// caller has locked. A request is done if reasons[i] is empty. Otherwise it
// fails with that reason and an audit row (request.failed) in the name of the
// caller that made it. now is a reading of the database's clock.
//
// The batch fails if a request is finished already, or claimed by another
// process.
func QueueFinish(b *pgx.Batch, finished []requests.Request, reasons []requests.Reason, now time.Time) {
	queueFinish(b, finished, reasons, now, OriginOf)
}

func queueFinish(b *pgx.Batch, finished []requests.Request, reasons []requests.Reason, now time.Time, origin func(*requests.Request) audit.Origin) {
	n := len(finished)
	tenants, ids := make([][16]byte, n), make([][16]byte, n)
	epochs, texts := make([]int32, n), make([]string, n)
	for i := range finished {
		r := &finished[i]
		tenants[i], ids[i], epochs[i], texts[i] = r.TenantID, r.RequestID, r.ClaimEpoch, string(reasons[i])
	}
	b.Queue(finishSQL, pg.Collapse(tenants), ids, pg.Collapse(epochs), pg.Collapse(texts), now).Exec(func(tag pgconn.CommandTag) error {
		if got := tag.RowsAffected(); got != int64(n) {
			return fmt.Errorf("finish %d requests: %d are finished or claimed by another process", n, int64(n)-got)
		}
		return nil
	})
	queueFinishParts(b, finished, now)
	inventory.QueueLeaveLine(b, inLine(finished))
	queueFailures(b, finished, reasons, origin)
}

// QueueFailures adds to b the audit rows of QueueFinish, for requests whose rows
// are inserted as finished.
func QueueFailures(b *pgx.Batch, finished []requests.Request, reasons []requests.Reason, _ time.Time) {
	queueFailures(b, finished, reasons, OriginOf)
}

func queueFailures(b *pgx.Batch, finished []requests.Request, reasons []requests.Reason, origin func(*requests.Request) audit.Origin) {
	var entries []audit.Entry
	for i := range finished {
		if reasons[i] != "" {
			entries = append(entries, failure(&finished[i], reasons[i], origin(&finished[i])))
		}
	}
	audit.Queue(b, entries)
}

// FinishTx is QueueFinish with the given origin in the audit rows, in place of
// the requests' own. It is correct at every isolation level, because the caller
// has locked the requests.
func FinishTx(ctx context.Context, tx pgx.Tx, finished []requests.Request, reasons []requests.Reason, now time.Time, origin audit.Origin) error {
	b := &pgx.Batch{}
	queueFinish(b, finished, reasons, now, func(*requests.Request) audit.Origin { return origin })
	return tx.SendBatch(ctx, b).Close()
}

// OriginOf is the actor and the correlation id of the call that made the request.
func OriginOf(r *requests.Request) audit.Origin {
	actor := audit.Anonymous()
	if r.ActorID != "" {
		actor = audit.User(r.ActorID)
	}
	return audit.Origin{Actor: actor, CorrelationID: r.CorrelationID}
}

// auditState is the state of a request in its audit rows.
type auditState struct {
	Status    requests.Status `json:"status"`
	Reason    requests.Reason `json:"reason,omitempty"`
	RetriedBy *uuid.UUID      `json:"retried_by,omitempty"`
	CartID    string          `json:"cart_id"`
	VariantID string          `json:"variant_id"`
	Quantity  int32           `json:"quantity"`
	RetryOf   *uuid.UUID      `json:"retry_of,omitempty"`
}

func failure(r *requests.Request, reason requests.Reason, origin audit.Origin) audit.Entry {
	before := auditState{Status: r.Status, CartID: r.CartID, VariantID: r.VariantID, Quantity: r.Quantity, RetryOf: r.RetryOf}
	after := before
	after.Status, after.Reason = requests.Failed, reason
	return audit.Entry{
		TenantID: r.TenantID, TargetID: r.RequestID, Action: "request.failed", Origin: origin,
		Before: toJSON(before), After: toJSON(after),
	}
}
