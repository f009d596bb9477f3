package metered_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
)

// command charges a budget, redeems the token and starts a job.
func (b *bundle) command(token metered.Token) metered.Command {
	spend := redeem(token)
	return metered.Command{
		Reserve: []metered.Charge{charge("global:hourly", 40, 100, time.Hour)},
		Spend:   &spend,
		Start:   b.transcode("key-1"),
		Compose: func(granted metered.Started) (river.JobArgs, error) {
			return raw{"transcode", fmt.Sprintf(`{"asked": {"asset": 7}, "granted": %s}`, granted.Payload)}, nil
		},
	}
}

// A command that commits changes token, budget and queue.
func TestCommand(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	started, err := b.commands.Run(t.Context(), b.command(b.mint()))
	b.must(err)
	if !started.Created || string(started.Payload) != `{"asset": 7}` || len(started.Reservations) != 1 || started.Reservations[0].Amount != 40 {
		t.Errorf("started %+v", started)
	}
	if got := b.rows(); got != everything {
		t.Errorf("rows %+v, want %+v", got, everything)
	}
	if n := b.count(`SELECT count(*) FROM river.river_job WHERE args = '{"asked": {"asset": 7}, "granted": {"asset": 7}}'
		AND metadata -> 'metered' ->> 'command_id' = $1`, started.CommandID.String()); n != 1 {
		t.Error("the job's row differs")
	}
	if n := b.count(`SELECT count(*) FROM budget_ledger WHERE scope = 'global:hourly' AND amount = 40 AND recorded_at = $1`,
		started.Reservations[0].ReservedAt); n != 1 {
		t.Error("the ledger's row differs")
	}
}

// A command refused in any of its steps does not change token, budget or queue,
// even if its transaction continues and commits.
func TestCommandRefused(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token, taken := b.mint(), b.transcode("taken")
	b.enqueue(taken)
	before := b.rows()
	for name, c := range map[string]struct {
		change func(*metered.Command)
		refuse func(error) bool
	}{
		"over budget": {func(c *metered.Command) { c.Reserve[0].Limit = 39 }, func(err error) bool {
			over := (*metered.Error)(nil)
			return errors.As(err, &over) && over.Remaining == 39 && over.Charge.Scope == "global:hourly"
		}},
		"second budget": {func(c *metered.Command) { c.Reserve = append(c.Reserve, charge("mine", 2, 1, time.Second)) }, func(err error) bool {
			over := (*metered.Error)(nil)
			return errors.As(err, &over) && over.Charge.Scope == "mine"
		}},
		"token":      {func(c *metered.Command) { c.Spend.Subject = "session-2" }, func(err error) bool { return errors.Is(err, tokens.ErrSubject) }},
		"key reused": {func(c *metered.Command) { c.Start.IdempotencyKey = "taken" }, func(err error) bool { return errors.Is(err, metered.ErrKeyReused) }},
		"bad job":    {func(c *metered.Command) { c.Start.InsertOpts = &river.InsertOpts{Priority: 9} }, func(err error) bool { return isInvalid(err, "priority") }},
		"bad charge": {func(c *metered.Command) { c.Reserve[0].Amount = 0 }, func(err error) bool { return isInvalid(err, "amount") }},
	} {
		command := b.command(token)
		c.change(&command)
		if _, err := b.commands.Run(t.Context(), command); !c.refuse(err) {
			t.Errorf("%s: %v", name, err)
		}
		b.must(b.inTx(func(tx pgx.Tx) error {
			if _, err := b.commands.RunTx(t.Context(), tx, command); !c.refuse(err) {
				t.Errorf("%s: %v", name, err)
			}
			return nil // commits
		}))
		if got := b.rows(); got != before {
			t.Errorf("%s leaves %+v, want %+v", name, got, before)
		}
	}
	if _, err := b.commands.Run(t.Context(), b.command(token)); err != nil {
		t.Errorf("the token or the key was used up: %v", err)
	}
}

// A command whose last step fails has no effect.
func TestCommandFails(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token, failed := b.mint(), errors.New("failed")
	compose := b.command(token)
	compose.Compose = func(metered.Started) (river.JobArgs, error) { return nil, failed }
	if _, err := b.commands.Run(t.Context(), compose); !errors.Is(err, failed) {
		t.Errorf("compose: %v", err)
	}
	for _, args := range []river.JobArgs{nil, raw{"transcode", `[]`}, raw{"encode", `{}`}} {
		composed := b.command(token)
		composed.Compose = func(metered.Started) (river.JobArgs, error) { return args, nil }
		if _, err := b.commands.Run(t.Context(), composed); err == nil || isRefusal(err) {
			t.Errorf("composed %+v: %v", args, err)
		}
	}
	b.exec(`ALTER TABLE river.river_job ADD CONSTRAINT refused CHECK (kind <> 'transcode')`)
	if _, err := b.commands.Run(t.Context(), b.command(token)); err == nil {
		t.Error("the queue accepted it")
	}
	err := b.inTx(func(tx pgx.Tx) error {
		command := b.command(token)
		command.Start.Args, command.Compose = raw{"encode", `{}`}, nil
		if _, err := b.commands.RunTx(t.Context(), tx, command); err != nil {
			t.Error(err)
		}
		return failed // the caller's later step fails
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	if got := b.rows(); got != (rows{}) {
		t.Errorf("left %+v", got)
	}
}

// A command that is sent again returns the id of the first one. It charges and
// redeems nothing, whatever token it presents.
func TestCommandSentAgain(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first := b.command(b.mint())
	started, err := b.commands.Run(t.Context(), first)
	b.must(err)
	other := b.command(b.mint())
	other.Reserve[0].Amount, other.Reserve[0].Limit = 10, 1
	none := b.command(rubbish)
	for name, command := range map[string]metered.Command{"the same": first, "another token": other, "no token": none} {
		again, err := b.commands.Run(t.Context(), command)
		b.must(err)
		if again.Created || again.CommandID != started.CommandID || again.Payload != nil || again.Reservations != nil {
			t.Errorf("%s: %+v", name, again)
		}
	}
	if got := b.rows(); got != everything {
		t.Errorf("rows %+v", got)
	}
	subject := b.command(b.mint())
	subject.Spend.Subject = "session-2"
	if _, err := b.commands.Run(t.Context(), subject); !errors.Is(err, metered.ErrKeyReused) {
		t.Errorf("for another subject: %v", err)
	}
}
