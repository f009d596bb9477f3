package carts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/verify"
)

// ownPool opens another pool to the database, which is closed when the test
// ends.
func ownPool(t *testing.T, db *pgxpool.Pool, connections int32) *pgxpool.Pool {
	t.Helper()
	config := db.Config()
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// startGroups runs a Groups until stop is called.
func startGroups(g *carts.Groups) (stop func()) {
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	return func() {
		end()
		running.Wait()
	}
}

// runGroups runs a Groups until the test ends.
func runGroups(t *testing.T, db *pgxpool.Pool, config carts.Config) *carts.Groups {
	t.Helper()
	g, err := carts.New(db, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(startGroups(g))
	return g
}

// awaitGathered waits until that many calls wait for a group.
func awaitGathered(t *testing.T, g *carts.Groups, calls int) {
	t.Helper()
	pgtest.Until(t, fmt.Sprintf("%d calls wait for a group", calls), func() bool { return g.Waiting() >= calls })
}

// answered is the answer to a caller of a verb.
type answered struct {
	changed   []reservations.Reservation
	cancelled []requests.Request
	replayed  string
	err       error
}

// inGroup makes the call in a group or, if it can't be grouped, in a separate
// transaction, as httpapi does. single reports the latter.
func inGroup(ctx context.Context, db *pgxpool.Pool, g *carts.Groups, c carts.Call) (a answered, single bool) {
	r, err := g.Do(ctx, c)
	if errors.Is(err, carts.ErrNotGrouped) {
		return inSingle(ctx, db, c), true
	}
	a = answered{changed: r.Reservations, err: err}
	if r.Replayed != nil {
		a.replayed = string(r.Replayed.Body)
	}
	return a, false
}

// errReplayed ends a transaction whose call was answered before.
var errReplayed = errors.New("the answer was stored")

// inSingle makes the call in a separate transaction.
func inSingle(ctx context.Context, db *pgxpool.Pool, c carts.Call) (a answered) {
	var conflict error
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
		a = answered{}
		if c.Key != "" {
			stored, err := tenants.ClaimKeyTx(ctx, tx, c.TenantID, c.Key, c.Fingerprint)
			if err != nil {
				return err
			}
			if stored != nil {
				a.replayed = string(stored.Body)
				return errReplayed
			}
			if err := requestrows.ReserveKeyTx(ctx, tx, c.TenantID, c.Key); err != nil {
				return err
			}
		}
		applied, err := carts.ApplyTx(ctx, tx, c.Call)
		if err != nil {
			return err
		}
		if applied.Conflict != nil {
			conflict = applied.Conflict
			if c.Key != "" {
				return tenants.ForgetClaimTx(ctx, tx, c.TenantID, c.Key)
			}
			return nil
		}
		a.changed = applied.Reservations
		for _, id := range applied.Cancelled {
			a.cancelled = append(a.cancelled, requests.Request{TenantID: c.TenantID, RequestID: id})
		}
		if c.Key == "" {
			return nil
		}
		answer, err := c.Answer(inventory.Result{Reservations: a.changed})
		if err != nil {
			return err
		}
		return tenants.StoreAnswerTx(ctx, tx, c.TenantID, c.Key, answer)
	})
	switch {
	case errors.Is(err, errReplayed):
		return answered{replayed: a.replayed}
	case err != nil:
		return answered{err: err}
	}
	a.err = conflict
	return a
}

// bodyOf is the answer that is stored of a call which changed the reservations.
func bodyOf(changed []reservations.Reservation) string {
	lines := make([]string, len(changed))
	for i := range changed {
		r := &changed[i]
		lines[i] = fmt.Sprintln(r.ReservationID, r.Status, r.Quantity, r.ExpiresAt.UnixMicro())
	}
	slices.Sort(lines)
	return "changed:\n" + strings.Join(lines, "")
}

// relaxCommits turns off synchronous_commit for the test's database, which
// saves most of the time of small transactions. It resets the pool.
func relaxCommits(b *testkit.Fixture) {
	b.TB.Helper()
	b.Exec(`ALTER DATABASE ` + pgx.Identifier{b.DB.Config().ConnConfig.Database}.Sanitize() + ` SET synchronous_commit = off`)
	b.DB.Reset()
}

// mustBeSound fails the test unless the rows keep all invariants.
func mustBeSound(t *testing.T, b *testkit.Fixture, config verify.Config) {
	t.Helper()
	b.CheckInvariants()
	report, err := verify.Run(t.Context(), b.DB, config)
	pgtest.Must(t, err)
	for _, check := range report.Checks {
		if check.Broken > 0 {
			t.Errorf("%s: %d rows, such as %s", check.Meaning, check.Broken, check.Sample[0])
		}
	}
}
