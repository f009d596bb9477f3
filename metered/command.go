package metered

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tokens"
)

// Command reserves budget, redeems a token and starts durable work: all three,
// or none.
type Command struct {
	// Reserve is at most 8 charges; none for a command that costs nothing.
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
	Compose func(granted Started) (river.JobArgs, error)
}

// Started is the result of a command.
type Started struct {
	CommandID uuid.UUID
	// Created is false for a command that was sent before: this call reserved,
	// redeemed and started nothing, and was granted nothing.
	Created bool
	// Payload is the redeemed token's; nil without a token.
	Payload json.RawMessage
	// Reservations are in the order of the charges. The job carries them: see
	// [CommandOf].
	Reservations []Reservation
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
// Refusals: [ErrTokenRefused], [ErrOverBudget], [ErrKeyReused], [ErrInvalid].
// After any other error the caller must roll back.
//
// It is correct at every isolation level, as [Commands.EnqueueTx] is.
func (c *Commands) RunTx(ctx context.Context, tx pgx.Tx, command Command) (_ Started, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.run")
	defer func() { done(outcomeOf(err)) }()
	p := price{command.Start.TenantID, command.Reserve, command.Spend}
	w, err := newWork(ctx, command.Start)
	if err != nil {
		return Started{}, err
	}
	if err := p.validate(c.Budgets.windowMax); err != nil {
		return Started{}, err
	}
	// The key comes first, because a command sent again must not redeem or
	// charge again, and is answered before any refusal.
	id, created, err := c.claimTx(ctx, tx, w, command.fingerprint(w))
	if err != nil {
		return Started{}, fmt.Errorf("run %s: %w", w.kind, err)
	}
	if !created {
		return Started{CommandID: id}, nil
	}
	started := Started{CommandID: id, Created: true}
	if err := c.payTx(ctx, tx, w, p, &started); err != nil {
		return Started{}, fmt.Errorf("run %s: %w", w.kind, err)
	}
	w.Reservations = started.Reservations
	if err := command.compose(w, started); err != nil {
		return Started{}, fmt.Errorf("run %s: compose its arguments: %w", w.kind, err)
	}
	if err := c.startTx(ctx, tx, id, w); err != nil {
		return Started{}, fmt.Errorf("run %s: %w", w.kind, err)
	}
	return started, nil
}

// compose sets the job's arguments to those made from what was granted. An
// error is not a refusal, because the transaction has already written.
func (c *Command) compose(w *work, granted Started) error {
	if c.Compose == nil {
		return nil
	}
	args, err := c.Compose(granted)
	if isRefusal(err) {
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
func (c *Commands) payTx(ctx context.Context, tx pgx.Tx, w *work, p price, started *Started) error {
	payload, budgets, refused := p.payTx(ctx, tx)
	if isRefusal(refused) {
		tag, err := tx.Exec(ctx, unclaimSQL, w.TenantID, w.opts.Queue, w.IdempotencyKey)
		if err == nil {
			err = pg.Reached(1, "metered: giving the key back")(tag)
		}
		if err != nil {
			return err
		}
	}
	if refused != nil {
		return refused
	}
	started.Payload = payload
	for _, b := range budgets {
		started.Reservations = append(started.Reservations, b.Reservation)
	}
	return nil
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
	if len(p.charges) > chargesMax {
		return invalidField("reserve", "must be at most %d charges", chargesMax)
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
// A refusal is ErrTokenRefused, which takes precedence, or ErrOverBudget. It
// returns the budgets too.
func (p *price) payTx(ctx context.Context, tx pgx.Tx) (payload json.RawMessage, budgets []Budget, err error) {
	scopes := newLockedScopes(p.tenant, p.charges)
	var locked tokens.Locked
	var spend tokens.Presented
	if r := p.spend; r != nil {
		spend = tokens.Parse(r.Token.Plaintext(), tokens.Terms{TenantID: p.tenant, Purpose: r.Purpose, OrPurpose: r.OrPurpose, Subject: r.Subject})
	}
	at, err := scopes.lockTx(ctx, tx, func(b *pgx.Batch) { locked.QueueLock(b, &spend) })
	if err != nil {
		return nil, nil, fmt.Errorf("lock %d scopes and their token: %w", len(scopes.names), err)
	}
	now := at.UnixMicro()
	if err := scopes.rebuildTx(ctx, tx, p.charges, now); err != nil {
		return nil, nil, err
	}
	var refused error
	if p.spend != nil {
		if refusal := locked.Refusal(&spend, at); refusal != "" {
			refused = &Error{Kind: ErrTokenRefused, Reason: string(refusal)}
		}
	}
	budgets, overBudget := scopes.charge(p.charges, refused == nil, now)
	if refused == nil {
		refused = overBudget
	}
	if refused == nil && p.spend != nil {
		payload = locked.Redeem(&spend)
	}
	b := &pgx.Batch{}
	scopes.queueWrite(b, now)
	locked.QueueWrite(b, at)
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return nil, nil, fmt.Errorf("reserve %d charges: %w", len(p.charges), err)
		}
	}
	return payload, budgets, refused
}
