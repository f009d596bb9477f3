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

// State is how far a command's work has come.
type State string

// The states. Queued is also what waits for its time, or for its next attempt. Done and Failed are what [JobStore.CompleteTx]
// and [JobStore.FailTx] recorded, else what River says. Ended is work whose worker recorded neither and of which River has
// forgotten how it ended: it keeps finished jobs for a while only, and forgets no other, unless an operator deletes one.
const (
	Queued    State = "queued"
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
	Ended     State = "ended"
)

// Status is what is known of a command.
type Status struct {
	CommandID                   uuid.UUID
	Queue, Kind, IdempotencyKey string
	State                       State
	// Attempt is how often the work was begun; 0 if River has forgotten it.
	Attempt int
	// CreatedAt is when the command was enqueued. ScheduledAt is when the work may begin or, after an attempt that failed,
	// begin again, FinishedAt when it ended; nil if River has forgotten it, or if it has not ended.
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

// Status reads how far a command has come, and changes nothing. It knows a command as long as its key is remembered.
// Error: [ErrUnknownCommand].
func (s *JobStore) Status(ctx context.Context, tenantID, commandID uuid.UUID) (Status, error) {
	status, err := s.readStatus(ctx, statusSQL, tenantID, commandID)
	if err != nil {
		return Status{}, fmt.Errorf("status of command %s: %w", commandID, err)
	}
	return status, nil
}

// StatusByKey is [JobStore.Status] for who knows the idempotency key only.
func (s *JobStore) StatusByKey(ctx context.Context, tenantID uuid.UUID, queue, idempotencyKey string) (Status, error) {
	status, err := s.readStatus(ctx, statusByKeySQL, tenantID, queue, idempotencyKey)
	if err != nil {
		return Status{}, fmt.Errorf("status of key %s on %s: %w", idempotencyKey, queue, err)
	}
	return status, nil
}

func (s *JobStore) readStatus(ctx context.Context, sql string, args ...any) (Status, error) {
	rows, err := s.db.Query(ctx, sql, args...)
	if err != nil {
		return Status{}, err
	}
	status, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Status])
	if errors.Is(err, pgx.ErrNoRows) {
		return Status{}, ErrUnknownCommand
	}
	return status, err
}
