package metered

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Enqueue is [Commandc.EnqueueTx] in its own transaction.
func (c *Commands) Enqueue(ctx context.Context, job Job) (id uuid.UUID, created bool, err error) {
	id, err = inTx(ctx, c.db, func(tx pgx.Tx) (id uuid.UUID, err error) {
		id, created, err = c.EnqueueTx(ctx, tx, job)
		return id, err
	})
	return id, created && err == nil, err
}

// EnqueueTx enqueues the job in the caller's transaction and returns the id of
// its command. A rollback leaves nothing: no job, no key, no event. After the
// commit a created job can be worked, and has its event, the audit row
// job.created, whose target is the command.
//
// A key that is remembered for (tenant, queue) creates nothing: EnqueueTx
// returns the first command's id. It is remembered until [Commands.Purge]
// deletes it, even if River has finished and deleted the job. Of several
// concurrent callers one creates the job; the others wait for it and get its
// id. Only the kind and the encoded arguments are compared.
//
// Refusals: [ErrInvalid] and [ErrKeyReused].
//
// It is correct at every isolation level. Above READ COMMITTED a key that was
// claimed after the transaction's first statement is a serialization failure
// (SQLSTATE 40001).
func (c *Commands) EnqueueTx(ctx context.Context, tx pgx.Tx, job Job) (id uuid.UUID, created bool, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.enqueue")
	defer func() { done(outcomeOf(err)) }()
	w, err := newWork(ctx, job)
	if err != nil {
		return uuid.Nil, false, err
	}
	id, created, err = c.claimTx(ctx, tx, w, w.fingerprint())
	if err == nil && created {
		err = c.startTx(ctx, tx, id, w)
	}
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("enqueue %s on %s: %w", w.kind, w.opts.Queue, err)
	}
	return id, created, nil
}

const claimSQL = `
INSERT INTO command_keys (tenant_id, queue, idempotency_key, command_id, kind, fingerprint)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant_id, queue, idempotency_key) DO NOTHING`

const readClaimSQL = `
SELECT command_id, fingerprint
FROM command_keys
WHERE tenant_id = $1 AND queue = $2 AND idempotency_key = $3`

// claimAttempts bounds the attempts to claim a key that is purged each time
// between the lost insert and the read.
const claimAttempts = 3

// claimTx claims the job's key, or a new one if it has none. If another command
// has the key, it reads that command. It waits for a transaction that has just
// claimed the key.
func (c *Commands) claimTx(ctx context.Context, tx pgx.Tx, w *work, fingerprint []byte) (id uuid.UUID, created bool, err error) {
	if id, err = uuid.NewV7(); err != nil {
		return uuid.Nil, false, err
	}
	w.IdempotencyKey = cmp.Or(w.IdempotencyKey, id.String())
	for range claimAttempts {
		tag, err := tx.Exec(ctx, claimSQL, w.TenantID, w.opts.Queue, w.IdempotencyKey, id, w.kind, fingerprint)
		if err != nil {
			return uuid.Nil, false, err
		}
		if tag.RowsAffected() == 1 {
			return id, true, nil
		}
		// A separate statement is needed, because the insert cannot see the row
		// that it conflicted with.
		var (
			first   uuid.UUID
			claimed []byte
		)
		err = tx.QueryRow(ctx, readClaimSQL, w.TenantID, w.opts.Queue, w.IdempotencyKey).Scan(&first, &claimed)
		switch {
		case errors.Is(err, pgx.ErrNoRows): // purged in between: the key is free again
		case err != nil:
			return uuid.Nil, false, err
		case !bytes.Equal(claimed, fingerprint):
			return uuid.Nil, false, &Error{Kind: ErrKeyReused}
		default:
			return first, false, nil
		}
	}
	return uuid.Nil, false, fmt.Errorf("its key was purged %d times while being read", claimAttempts)
}

const startedSQL = `
UPDATE command_keys
SET job_id = $4
WHERE tenant_id = $1 AND queue = $2 AND idempotency_key = $3 AND job_id IS NULL`

// startTx inserts the job under the key that the same transaction claimed, and
// its event.
func (c *Commands) startTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, w *work) error {
	opts := w.opts
	var err error
	if opts.Metadata, err = w.metadata(id); err != nil {
		return err
	}
	inserted, err := c.river.InsertTx(ctx, tx, w.Args, &opts)
	if err != nil {
		return err
	}
	after, err := json.Marshal(struct {
		Queue       string    `json:"queue"`
		Kind        string    `json:"kind"`
		JobID       int64     `json:"job_id"`
		ScheduledAt time.Time `json:"scheduled_at,omitzero"`
		State       string    `json:"state"`
	}{opts.Queue, w.kind, inserted.Job.ID, opts.ScheduledAt, queued})
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(startedSQL, w.TenantID, opts.Queue, w.IdempotencyKey, inserted.Job.ID).Exec(pg.Reached(1, "metered: noting the job"))
	audit.Queue(b, []audit.Entry{{TenantID: w.TenantID, TargetID: id, Action: "job.created", Origin: w.Origin, After: after}})
	return tx.SendBatch(ctx, b).Close()
}
