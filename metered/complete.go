package metered

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// resultMax is how many bytes a command's result may have.
const resultMax = 64 << 10

// CompleteTx records in the worker's transaction that the work of a job's
// command is done, and writes its event, the audit row job.completed with the
// result. The result is JSON of at most 64 KiB, with the rules of a job's
// arguments; nil for none. The worker calls it before its own writes and
// commits all of it together. So its effects, the settlement of what was
// reserved and the event happen once, or not at all.
//
// River runs a job again if its process dies between that commit and River's
// own completion, and a job that it considers stuck while it still runs. Of all
// runs one gets past CompleteTx. The others wait for its transaction, and if it
// commits they receive [ErrEnded]. A worker that receives ErrEnded rolls back
// and returns nil.
//
// Refusals: [ErrEnded], [ErrUnknown], [ErrInvalid]. The command's row is
// locked, before budget scopes. A command whose key was purged before it ended
// is inserted again, as ended.
//
// It is correct at every isolation level. Above READ COMMITTED a command that
// another run ended meanwhile is a serialization failure (SQLSTATE 40001).
func (c *Commands) CompleteTx(ctx context.Context, tx pgx.Tx, job *rivertype.JobRow, result json.RawMessage) (err error) {
	ctx, finish := telemetry.Verb(ctx, "metered.complete")
	defer func() { finish(outcomeOf(err)) }()
	if len(result) > 0 {
		if err := validateJSON("result", result, resultMax); err != nil {
			return err
		}
	}
	return c.endTx(ctx, tx, job, "job.completed", ended{State: done, Attempt: job.Attempt, Result: result})
}

// causeMax bounds the text of a failure in its event, in bytes.
const causeMax = 1000

// FailTx records that the work of a job's command has failed for good, and
// writes its event, the audit row job.failed with the first 1000 bytes of the
// cause. A worker calls it if River will not run the job again: with its last
// attempt (Attempt is MaxAttempts) or before river.JobCancel. Everything else
// is as in [Commands.CompleteTx].
func (c *Commands) FailTx(ctx context.Context, tx pgx.Tx, job *rivertype.JobRow, cause error) (err error) {
	ctx, finish := telemetry.Verb(ctx, "metered.fail")
	defer func() { finish(outcomeOf(err)) }()
	if cause == nil {
		return invalidField("cause", "must not be nil")
	}
	text := cause.Error()
	text = strings.ReplaceAll(strings.ToValidUTF8(text[:min(len(text), causeMax)], "\uFFFD"), "\x00", "\uFFFD") // what jsonb holds
	return c.endTx(ctx, tx, job, "job.failed", ended{State: failed, Attempt: job.Attempt, Error: text})
}

// ended is a command's state in the event of its end.
type ended struct {
	State   string          `json:"state"`
	Attempt int             `json:"attempt"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// endSQL ends a command that has not ended. It inserts the row again if it was
// purged, because a second run would otherwise end the command again.
const endSQL = `
INSERT INTO command_keys AS k (tenant_id, queue, idempotency_key, command_id, kind, fingerprint, job_id, outcome, ended_at)
VALUES ($1, $2, $3::uuid::text, $3, $4, '', $5, $6, clock_timestamp())
ON CONFLICT (tenant_id, command_id) DO UPDATE
SET outcome = excluded.outcome, ended_at = excluded.ended_at
WHERE k.ended_at IS NULL`

// endTx ends the command if it is the first to do so, with its event.
func (c *Commands) endTx(ctx context.Context, tx pgx.Tx, job *rivertype.JobRow, action string, state ended) error {
	ref, err := CommandOf(job.Metadata)
	if err != nil {
		return err
	}
	if err := validateTenant(ref.TenantID); err != nil {
		return err
	}
	after, err := json.Marshal(state)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, endSQL, ref.TenantID, job.Queue, ref.CommandID, job.Kind, job.ID, state.State)
	if err != nil {
		return fmt.Errorf("end command %s: %w", ref.CommandID, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("end command %s: %w", ref.CommandID, &Error{Kind: ErrEnded})
	}
	err = audit.WriteTx(ctx, tx, []audit.Entry{{
		TenantID: ref.TenantID, TargetID: ref.CommandID, Action: action,
		Origin: audit.Origin{Actor: audit.Job(job.Kind), CorrelationID: ref.CorrelationID},
		Before: json.RawMessage(`{"state": "running"}`), After: after,
	}})
	if err != nil {
		return fmt.Errorf("end command %s: %w", ref.CommandID, err)
	}
	return nil
}
