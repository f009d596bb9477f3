package metered

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Command reserves budget, redeems a token and starts durable work: all three,
// or none.
type Command struct {
	// Reserve is at most ChargesMax charges; none for a command that costs
	// nothing.
	Reserve []Charge
	// Spend is the token that allows the command; nil if none is needed.
	Spend *Redemption
	// Start is the work, and names the tenant of the command. Its kind and
	// arguments identify a command that is sent again.
	Start Job
	// Compose makes the arguments that the job is inserted with from what was
	// granted. They have the same kind as Start's. If it is nil, the job has
	// Start's arguments. If it returns an error, or arguments that a job cannot
	// have, the command fails and the transaction must be rolled back.
	Compose func(granted Granted) (river.JobArgs, error)
}

// Granted is what a command was granted.
type Granted struct {
	// Payload is the redeemed token's; nil without a token.
	Payload json.RawMessage
	// Reservations are in the order of the charges. The job carries them: see
	// [CommandOf].
	Reservations []Reservation
}

// Started is the result of a command.
type Started struct {
	CommandID uuid.UUID
	// Created is false for a command that was sent before: this call reserved,
	// redeemed and started nothing.
	Created bool
	// Granted is empty unless Created.
	Granted
}

// Commands runs commands. It is safe for concurrent use, in any number of
// processes.
type Commands struct {
	db      *pgxpool.Pool
	budgets *BudgetLedger
	jobs    *JobStore
}

// NewCommands makes a Commands that reserves in the ledger, redeems tokens, and
// enqueues in the store.
func NewCommands(db *pgxpool.Pool, budgets *BudgetLedger, jobs *JobStore) *Commands {
	return &Commands{db, budgets, jobs}
}

// Run is [Commands.RunTx] in its own transaction. An error of its COMMIT
// without a SQLSTATE means that it is unknown whether the command ran. The
// caller then runs it again under its idempotency key.
func (c *Commands) Run(ctx context.Context, command Command) (Started, error) {
	return inTx(ctx, c.db, func(tx pgx.Tx) (Started, error) { return c.RunTx(ctx, tx, command) })
}

// RunTx runs the command in the caller's transaction. The commit charges the
// budget, redeems the token and enqueues the job; a rollback undoes all three.
// A command whose idempotency key is remembered is not run again: RunTx returns
// the id of the first one, and does not redeem the token presented with it.
//
// Refusals: one of [ErrTokenRefused], an [*OverBudgetError], [ErrKeyReused], an
// [*InvalidError]. After any other error the caller must roll back.
//
// It is correct at every isolation level, as [JobStore.EnqueueTx] is.
func (c *Commands) RunTx(ctx context.Context, tx pgx.Tx, command Command) (_ Started, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.run")
	defer func() { done(outcomeOf(err)) }()
	job, p := command.Start, price{command.Start.TenantID, command.Reserve, command.Spend}
	job.Origin.CorrelationID = cmp.Or(job.Origin.CorrelationID, telemetry.Correlation(ctx))
	w, err := newWork(job)
	if err != nil {
		return Started{}, err
	}
	if err := p.validate(c.budgets.windowMax); err != nil {
		return Started{}, err
	}
	// The key comes first, because a command sent again must not redeem or
	// charge again, and is answered before any refusal.
	id, created, err := c.jobs.claimTx(ctx, tx, w, command.fingerprint(w))
	if err != nil {
		return Started{}, fmt.Errorf("run %s: %w", w.kind, err)
	}
	if !created {
		return Started{CommandID: id}, nil
	}
	granted, err := c.payTx(ctx, tx, w, p)
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

// compose sets the job's arguments to those made from what was granted. An
// error is not a refusal, because the transaction has already written.
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

// payTx takes the command's price. If it is refused, it deletes the command's
// key.
func (c *Commands) payTx(ctx context.Context, tx pgx.Tx, w *work, p price) (granted Granted, err error) {
	payload, budgets, refused := p.payTx(ctx, tx)
	if errors.Is(refused, ErrRefused) {
		tag, err := tx.Exec(ctx, unclaimSQL, w.TenantID, w.opts.Queue, w.IdempotencyKey)
		if err == nil {
			err = pg.Reached(1, "metered: giving the key back")(tag)
		}
		if err != nil {
			return Granted{}, err
		}
	}
	if refused != nil {
		return Granted{}, refused
	}
	granted.Payload = payload
	for _, b := range budgets {
		granted.Reservations = append(granted.Reservations, b.Reservation)
	}
	return granted, nil
}

// fingerprint covers the job's fingerprint and the purpose and subject of the
// token. It does not cover the token, because a caller that lost the answer may
// repeat the command with a new one. It does not cover the charges, because
// prices may have changed.
func (c *Command) fingerprint(w *work) []byte {
	if c.Spend == nil {
		return w.fingerprint()
	}
	return w.fingerprint(c.Spend.Purpose, c.Spend.Subject)
}

// price is what one command takes: room in each of its budgets, and a token.
type price struct {
	tenant  uuid.UUID
	charges []Charge
	spend   *Redemption // nil for no token
}

func (p *price) validate(windowMax time.Duration) error {
	if err := validateTenant(p.tenant); err != nil {
		return err
	}
	if len(p.charges) > ChargesMax {
		return &InvalidError{Field: "reserve", Message: fmt.Sprintf("must be at most %d charges", ChargesMax)}
	}
	for i := range p.charges {
		if err := p.charges[i].validate(windowMax); err != nil {
			return err
		}
	}
	return nil
}

// payTx reserves all charges and redeems the token, or neither, in two round
// trips.
//
// A refusal is one of [ErrTokenRefused], which takes precedence, or an
// [*OverBudgetError]. It returns the budgets too.
func (p *price) payTx(ctx context.Context, tx pgx.Tx) (payload json.RawMessage, budgets []Budget, err error) {
	scopes, tokens := newLockedScopes(p.tenant, p.charges), &lockedTokens{}
	var asked []tokenKey
	if p.spend != nil && p.spend.Token.WellFormed() {
		asked = []tokenKey{{p.tenant, p.spend.Token.hash()}}
	}
	at, err := lockTx(ctx, tx, scopes, tokens, asked)
	if err != nil {
		return nil, nil, fmt.Errorf("lock %d scopes and %d tokens: %w", len(scopes.names), len(asked), err)
	}
	now := at.UnixMicro()
	if err := scopes.rebuildTx(ctx, tx, p.charges, now); err != nil {
		return nil, nil, err
	}
	var token *lockedToken
	var refused error
	switch {
	case len(asked) > 0:
		token = tokens.found[asked[0]]
		refused = token.refusal(p.spend, at)
	case p.spend != nil:
		refused = ErrTokenMalformed
	}
	budgets, overBudget := scopes.charge(p.charges, refused == nil, now)
	if refused == nil {
		refused = overBudget
	}
	if refused == nil && token != nil {
		tokens.redeem(token)
		payload = token.Payload
	}
	b := &pgx.Batch{}
	scopes.queueWrite(b, now)
	tokens.queueWrite(b, at)
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return nil, nil, fmt.Errorf("reserve %d charges: %w", len(p.charges), err)
		}
	}
	return payload, budgets, refused
}
