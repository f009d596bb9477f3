package metered

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/migrations"
)

// The states of which this package writes events.
const (
	queued = "queued"
	done   = "done"
	failed = "failed"
)

// Status is the state of a command.
type Status struct {
	CommandID                   uuid.UUID
	Queue, Kind, IdempotencyKey string
	// State is how far the work has come: queued, running, done, failed,
	// cancelled or ended. Queued includes work that waits for its time or its
	// next attempt. Done and failed are what [Commands.CompleteTx] and
	// [Commands.FailTx] recorded, or else River's state. Ended is work whose
	// worker recorded neither, and whose job River has deleted: it keeps
	// finished jobs for a while only, and deletes no other, unless an operator
	// does.
	State string
	// Attempt is how often the work was started; 0 if River has deleted the
	// job.
	Attempt int
	// CreatedAt is when the command was enqueued. ScheduledAt is when the work
	// may start or, after a failed attempt, start again; FinishedAt is when it
	// ended. They are nil if River has deleted the job, or if it has not ended.
	CreatedAt               time.Time
	ScheduledAt, FinishedAt *time.Time
}

const statusColumns = `k.command_id, k.queue, k.kind, k.idempotency_key,
       CASE
           WHEN k.outcome IS NOT NULL THEN k.outcome
           WHEN j.state = 'running' THEN 'running'
           WHEN j.state = 'completed' THEN 'done'
           WHEN j.state = 'discarded' THEN 'failed'
           WHEN j.state = 'cancelled' THEN 'cancelled'
           WHEN j.id IS NULL THEN 'ended'
           ELSE 'queued'
       END AS state,
       coalesce(j.attempt, 0) AS attempt, k.created_at, j.scheduled_at, coalesce(k.ended_at, j.finalized_at) AS finished_at
FROM command_keys k
LEFT JOIN ` + migrations.RiverSchema + `.river_job j ON j.id = k.job_id`

const statusSQL = `
SELECT ` + statusColumns + `
WHERE k.tenant_id = $1 AND k.command_id = $2`

const statusByKeySQL = `
SELECT ` + statusColumns + `
WHERE k.tenant_id = $1 AND k.queue = $2 AND k.idempotency_key = $3`

// Status reads how far a command has come, and changes nothing. It knows a
// command while its key is remembered. Error: [ErrUnknown].
func (c *Commands) Status(ctx context.Context, tenantID, commandID uuid.UUID) (Status, error) {
	return c.readStatus(ctx, "command "+commandID.String(), statusSQL, tenantID, commandID)
}

// StatusByKey is [Commands.Status] by the idempotency key.
func (c *Commands) StatusByKey(ctx context.Context, tenantID uuid.UUID, queue, idempotencyKey string) (Status, error) {
	return c.readStatus(ctx, "key "+idempotencyKey+" on "+queue, statusByKeySQL, tenantID, queue, idempotencyKey)
}

func (c *Commands) readStatus(ctx context.Context, what, sql string, args ...any) (Status, error) {
	rows, _ := c.db.Query(ctx, sql, args...)
	status, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Status])
	if errors.Is(err, pgx.ErrNoRows) {
		err = errUnknownCommand
	}
	if err != nil {
		return Status{}, fmt.Errorf("status of %s: %w", what, err)
	}
	return status, nil
}
