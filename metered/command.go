package metered

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// Command reserves budget, spends a grant and starts durable work: all three, or none.
type Command struct {
	// Reserve is at most ChargesMax charges; none for a command that costs nothing.
	Reserve []Charge
	// Spend is the token that allows it; nil if none is needed.
	Spend *Redemption
	// Start is the work, and says for which tenant all of it is. Its arguments are what the caller asks for, and with the
	// kind what makes a command sent again the same one.
	Start Job
	// Compose makes the arguments that the job is inserted with of what was granted; they are of the same kind as Start's.
	// Nil: Start's as they are. An error of it fails the command, and so do arguments that a job cannot have: the
	// transaction must be rolled back.
	Compose func(granted Granted) (river.JobArgs, error)
}

// Granted is what a command was let through with.
type Granted struct {
	// Payload is the spent token's; nil without one.
	Payload json.RawMessage
	// Reservations stand in the order of the charges. The job carries them: see [CommandOf].
	Reservations []Reservation
}

// Started is what came of a command.
type Started struct {
	CommandID uuid.UUID
	// Created is false for a command that was sent before: nothing was reserved, spent or started a second time.
	Created bool
	// Granted is empty unless Created.
	Granted
}

// Commands runs commands. It is safe for concurrent use, in any number of processes.
type Commands struct {
	db   *pgxpool.Pool
	gate *Gate
	jobs *JobStore
}

// NewCommands makes one over the gate's budgets and tokens and the store's jobs.
func NewCommands(db *pgxpool.Pool, gate *Gate, jobs *JobStore) *Commands {
	return &Commands{db, gate, jobs}
}

// Run is [Commands.RunTx] in a transaction of its own. An error of its COMMIT without a SQLSTATE means that the command's
// fate is unknown: run it again under its idempotency key.
func (c *Commands) Run(ctx context.Context, command Command) (started Started, err error) {
	err = inTx(ctx, c.db, func(tx pgx.Tx) error {
		started, err = c.RunTx(ctx, tx, command)
		return err
	})
	if err != nil {
		return Started{}, err
	}
	return started, nil
}

// RunTx runs the command in the caller's transaction: when that commits, the budget is charged, the token spent and the
// job there; rolled back, none of it. A command under an idempotency key that is remembered is not run again: it returns
// the first one's id, and a token presented with it, the same or another, is not spent.
//
// Refusals: one of [ErrTokenRefused], an [*OverBudgetError], [ErrKeyReused], an [*InvalidError]. After any other error the
// caller must roll back.
//
// It is right at every isolation level, as [JobStore.EnqueueTx] and [Gate.PassTx] are.
func (c *Commands) RunTx(ctx context.Context, tx pgx.Tx, command Command) (_ Started, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.run")
	defer func() { done(outcomeOf(err)) }()
	job, pass := command.Start, Pass{TenantID: command.Start.TenantID, Reserve: command.Reserve, Spend: command.Spend}
	job.Origin.CorrelationID = cmp.Or(job.Origin.CorrelationID, telemetry.Correlation(ctx))
	w, err := newWork(job)
	if err != nil {
		return Started{}, err
	}
	if err := pass.validate(c.gate.windowMax); err != nil {
		return Started{}, err
	}
	// The key goes first: a command sent again must not spend or charge again, and is told so before anything else.
	id, created, err := c.jobs.claimTx(ctx, tx, w, command.fingerprint(w))
	if err != nil {
		return Started{}, fmt.Errorf("run %s: %w", w.kind, err)
	}
	if !created {
		return Started{CommandID: id}, nil
	}
	granted, err := c.passTx(ctx, tx, w, pass)
	if err != nil {
		return Started{}, fmt.Errorf("run %s: %w", w.kind, err)
	}
	w.Reservations = granted.Reservations
	if err := command.compose(w, granted); err != nil {
		return Started{}, fmt.Errorf("run %s: compose its arguments: %w", w.kind, err)
	}
	if err := c.jobs.startTx(ctx, tx, id, w); err != nil {
		return Started{}, fmt.Errorf("run %s: %w", w.kind, err)
	}
	return Started{CommandID: id, Created: true, Granted: granted}, nil
}

// compose gives the job the arguments that are made of what was granted. What is wrong with them is no refusal: the
// transaction has been written to.
func (c *Command) compose(w *work, granted Granted) error {
	if c.Compose == nil {
		return nil
	}
	args, err := c.Compose(granted)
	if errors.Is(err, ErrRefused) {
		return errors.New(err.Error())
	}
	if err != nil {
		return err
	}
	kind := w.kind
	if err := w.encode(args); err != nil {
		return errors.New(err.Error())
	}
	if w.kind != kind {
		return fmt.Errorf("they are of kind %s", w.kind)
	}
	return nil
}

const unclaimSQL = `
DELETE FROM command_keys
WHERE tenant_id = $1 AND queue = $2 AND idempotency_key = $3 AND job_id IS NULL`

// passTx lets the command through, or gives its key back.
func (c *Commands) passTx(ctx context.Context, tx pgx.Tx, w *work, p Pass) (granted Granted, err error) {
	verdicts, err := c.gate.PassTx(ctx, tx, []Pass{p})
	if err != nil {
		return Granted{}, err
	}
	if refused := verdicts[0].Err; refused != nil {
		tag, err := tx.Exec(ctx, unclaimSQL, w.TenantID, w.opts.Queue, w.IdempotencyKey)
		if err == nil {
			err = exactly(1, "giving the key back")(tag)
		}
		if err != nil {
			return Granted{}, err
		}
		return Granted{}, refused
	}
	granted.Payload = verdicts[0].Payload
	for _, b := range verdicts[0].Budgets {
		granted.Reservations = append(granted.Reservations, b.Reservation)
	}
	return granted, nil
}

// fingerprint is the job's, and of what the token is for. The token itself is no part of it: a caller who lost the answer
// may come back with a new one. Neither are the charges: what a thing costs may have changed meanwhile.
func (c *Command) fingerprint(w *work) []byte {
	if c.Spend == nil {
		return w.fingerprint()
	}
	return w.fingerprint(c.Spend.Purpose, c.Spend.Subject)
}
