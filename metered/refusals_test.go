package metered_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
)

// Every verb refuses the zero tenant with the name of the field, and the
// transaction can continue.
func TestZeroTenant(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ctx, none := t.Context(), uuid.Nil
	one, spend := charge("s", 1, 10, time.Hour), redeem(b.mint())
	job, before := b.transcode("key"), b.rows()
	job.TenantID = none
	for verb, call := range map[string]func(tx pgx.Tx) error{
		"enqueue": func(tx pgx.Tx) error { _, _, err := b.commands.EnqueueTx(ctx, tx, job); return err },
		"run":     func(tx pgx.Tx) error { _, err := b.commands.RunTx(ctx, tx, metered.Command{Start: job}); return err },
		"reserve": func(tx pgx.Tx) error { _, err := b.budgets.TryReserveTx(ctx, tx, none, one); return err },
		"settle": func(tx pgx.Tx) error {
			_, err := b.budgets.SettleTx(ctx, tx, none, metered.Reservation{Scope: "s", ReservedAt: time.Now()}, 1)
			return err
		},
		"sum":     func(pgx.Tx) error { _, err := b.budgets.WindowedSum(ctx, none, "s", time.Hour); return err },
		"mint":    func(tx pgx.Tx) error { _, err := b.tokens.MintTx(ctx, tx, none); return err },
		"consume": func(tx pgx.Tx) error { _, err := b.tokens.ConsumeTx(ctx, tx, none, spend); return err },
	} {
		b.must(b.inTx(func(tx pgx.Tx) error {
			err := call(tx)
			if !isInvalid(err, "tenant_id") {
				t.Errorf("%s: %v", verb, err)
			}
			return nil // commits
		}))
	}
	if got := b.rows(); got != before {
		t.Errorf("rows %+v, want %+v", got, before)
	}
}

// Every refusal is an Error, and a sentinel for its kind. Its text begins
// with the package's name, and it has its fields.
func TestRefusalsAreOneKind(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ctx := t.Context()
	settled := b.reserve(charge("s", 1, 1, time.Hour)).Reservation
	_, err := b.budgets.Settle(ctx, b.tenant, settled, 0)
	b.must(err)
	full := b.reserve(charge("full", 1, 1, time.Hour)).Reservation
	b.enqueue(b.transcode("key"))
	other := b.transcode("key")
	other.Args = transcodeArgs{8}
	none := metered.Reservation{Scope: "s", ReservedAt: time.UnixMicro(1)}
	for _, c := range []struct {
		err  error
		want error
	}{
		{second(b.budgets.TryReserve(ctx, b.tenant, charge("full", 1, 1, time.Hour))), metered.ErrOverBudget},
		{second(b.budgets.TryReserve(ctx, b.tenant, charge("full", 0, 1, time.Hour))), metered.ErrInvalid},
		{second(b.consume(redeem(rubbish))), tokens.ErrMalformed},
		{second(b.consume(redeem(rubbish))), metered.ErrTokenRefused},
		{second(b.budgets.Settle(ctx, b.tenant, settled, 1)), metered.ErrSettled},
		{second(b.budgets.Settle(ctx, b.tenant, none, 1)), metered.ErrUnknown},
		{second(b.budgets.Settle(ctx, uuid.New(), full, 0)), metered.ErrUnknown},
		{func() error { _, _, err := b.commands.Enqueue(ctx, other); return err }(), metered.ErrKeyReused},
		{second(b.commands.Run(ctx, metered.Command{Start: other})), metered.ErrKeyReused},
		{second(b.commands.Status(ctx, b.tenant, uuid.New())), metered.ErrUnknown},
		{second(metered.CommandOf([]byte(`{}`))), metered.ErrUnknown},
	} {
		if !errors.Is(c.err, c.want) || !isRefusal(c.err) || !strings.Contains(c.err.Error(), "metered: ") {
			t.Errorf("%v, want %v", c.err, c.want)
		}
	}
	over, ok := errors.AsType[*metered.Error](second(b.budgets.TryReserve(ctx, b.tenant, charge("full", 1, 1, time.Hour))))
	if !ok || over.Charge.Scope != "full" || over.Remaining != 0 || over.Wait <= 0 {
		t.Errorf("over budget: %+v", over)
	}
	if _, err := b.commands.Status(canceled(ctx), b.tenant, uuid.New()); err == nil || isRefusal(err) {
		t.Errorf("an error of the database: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
