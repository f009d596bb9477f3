package metered_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
)

// started runs a command that reserves 40, and returns its id and its job's row
// as a worker receives it.
func (b *bundle) started() (id uuid.UUID, job *rivertype.JobRow) {
	b.t.Helper()
	command := b.command(noToken)
	command.Spend, command.Compose = nil, nil
	s, err := b.commands.Run(telemetry.WithCorrelation(context.Background(), "corr-1"), command)
	b.must(err)
	job = &rivertype.JobRow{Attempt: 1, Queue: "assets", Kind: "transcode"}
	b.must(b.db.QueryRow(context.Background(), `SELECT id, metadata FROM river.river_job WHERE metadata -> 'metered' ->> 'command_id' = $1`,
		s.CommandID.String()).Scan(&job.ID, &job.Metadata))
	return s.CommandID, job
}

// work completes a job and settles its reservation in one transaction, as a
// worker does.
func (b *bundle) work(job *rivertype.JobRow) error {
	ctx := context.Background()
	ref, err := metered.CommandOf(job.Metadata)
	if err != nil {
		return err
	}
	return b.inTx(func(tx pgx.Tx) error {
		if err := b.commands.CompleteTx(ctx, tx, job, json.RawMessage(`{"width": 1024}`)); err != nil {
			return err
		}
		_, err := b.budgets.SettleTx(ctx, tx, ref.TenantID, ref.Reservations[0], 30)
		return err
	})
}

// actions returns the actions of a command's events.
func (b *bundle) actions(id uuid.UUID) (actions []string) {
	b.t.Helper()
	records, err := audit.History(context.Background(), b.db, b.tenant, id)
	b.must(err)
	for _, r := range records {
		actions = append(actions, r.Action)
	}
	return actions
}

// worked are the events of a command whose job ran, however often.
var worked = []string{"job.created", "job.completed"}

// A completed command has an event with the result, and Status reports it
// without River.
func TestComplete(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id, job := b.started()
	b.must(b.work(job))
	records, err := audit.History(t.Context(), b.db, b.tenant, id)
	b.must(err)
	if len(records) != 2 || records[1].Action != "job.completed" || records[1].Actor != audit.Job("transcode") || records[1].CorrelationID != "corr-1" {
		t.Fatalf("events %+v", records)
	}
	state, err := audit.ReconstructState(records)
	b.must(err)
	got := map[string]string{}
	for name, value := range state {
		got[name] = string(value)
	}
	want := map[string]string{"queue": `"assets"`, "kind": `"transcode"`, "job_id": "1", "state": `"done"`, "attempt": "1", "result": `{"width": 1024}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the command's state (-want +got):\n%s", diff)
	}
	for _, change := range []string{`SELECT`, `DELETE FROM river.river_job`} {
		b.exec(change)
		if status, err := b.commands.Status(t.Context(), b.tenant, id); err != nil || status.State != "done" || status.FinishedAt == nil {
			t.Errorf("after %s: %+v, %v", change, status, err)
		}
	}
}

// A command ends once, by its first run. Every later run is refused and changes
// nothing, and its transaction can continue.
func TestEndsOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	broken := errors.New("broken: \x00 \xff")
	for action, first := range map[string]func(tx pgx.Tx, job *rivertype.JobRow) error{
		"job.completed": func(tx pgx.Tx, job *rivertype.JobRow) error { return b.commands.CompleteTx(t.Context(), tx, job, nil) },
		"job.failed":    func(tx pgx.Tx, job *rivertype.JobRow) error { return b.commands.FailTx(t.Context(), tx, job, broken) },
	} {
		command := b.transcode("")
		id, _ := b.enqueue(command)
		job := &rivertype.JobRow{ID: 1, Attempt: 3, Queue: "assets", Kind: "transcode"}
		b.must(b.db.QueryRow(t.Context(), `SELECT metadata FROM river.river_job WHERE metadata -> 'metered' ->> 'command_id' = $1`, id.String()).Scan(&job.Metadata))
		b.must(b.inTx(func(tx pgx.Tx) error { return first(tx, job) }))
		b.must(b.inTx(func(tx pgx.Tx) error {
			if err := b.commands.CompleteTx(t.Context(), tx, job, nil); !errors.Is(err, metered.ErrEnded) || !isRefusal(err) {
				t.Errorf("completed after %s: %v", action, err)
			}
			if err := b.commands.FailTx(t.Context(), tx, job, broken); !errors.Is(err, metered.ErrEnded) {
				t.Errorf("failed after %s: %v", action, err)
			}
			return nil // commits
		}))
		if diff := cmp.Diff([]string{"job.created", action}, b.actions(id)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	}
	if n := b.count(`SELECT count(*) FROM audit_log WHERE action = 'job.failed' AND after = '{"state": "failed", "attempt": 3, "error": "broken: � �"}'`); n != 1 {
		t.Error("the event of the failure differs")
	}
}

// Of two concurrent runs of one job, the second waits for the first. It ends
// the command only if the first did not.
func TestTwoRunsAtOnce(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"the first commits": true, "the first rolls back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			id, job := b.started()
			first, err := b.db.Begin(t.Context())
			b.must(err)
			b.must(b.commands.CompleteTx(t.Context(), first, job, nil))
			second := make(chan error, 1)
			go func() { second <- b.work(job) }()
			pgtest.UntilBlocked(t, b.db, 1)
			if commits {
				b.must(first.Commit(t.Context()))
			} else {
				b.must(first.Rollback(t.Context()))
			}
			if err := <-second; errors.Is(err, metered.ErrEnded) != commits || !commits && err != nil {
				t.Errorf("the second run: %v", err)
			}
			if diff := cmp.Diff(worked, b.actions(id)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// At a stricter isolation level, a run that comes after another one fails with
// a serialization failure.
func TestOvertakenRun(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id, job := b.started()
	err := b.after(pgx.RepeatableRead, func() { b.must(b.work(job)) }, func(tx pgx.Tx) error {
		return b.commands.CompleteTx(t.Context(), tx, job, nil)
	})
	if pg.Code(err) != "40001" {
		t.Error(err)
	}
	if diff := cmp.Diff(worked, b.actions(id)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A purge causes no second event. The key of an ended command is kept after its
// end, whatever its age. One that was purged before its end is inserted again.
func TestPurgedCommandEndsOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	purge := func(want int64) {
		t.Helper()
		if n, err := b.commands.PurgeKeys(t.Context(), time.Hour, 10); err != nil || n != want {
			t.Errorf("purged %d, %v, want %d", n, err, want)
		}
	}
	for i, purgedBefore := range []int64{0, 1} {
		b.exec(`DELETE FROM command_keys`)
		id, job := b.started()
		b.exec(`UPDATE command_keys SET created_at = created_at - interval '2 hours' WHERE command_id = $1`, id)
		if purgedBefore == 1 {
			purge(1)
		}
		b.must(b.work(job))
		purge(0)
		if err := b.work(job); !errors.Is(err, metered.ErrEnded) {
			t.Errorf("case %d: the second run: %v", i, err)
		}
		if diff := cmp.Diff(worked, b.actions(id)); diff != "" {
			t.Errorf("case %d: events (-want +got):\n%s", i, diff)
		}
		b.exec(`UPDATE command_keys SET created_at = created_at - interval '2 hours', ended_at = ended_at - interval '2 hours'`)
		purge(1)
	}
}

// A worker whose session ends between any two of its steps commits all of them
// or none. The next run does the rest, once.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for last, alive := 1, false; !alive; last++ {
		b.exec(`DELETE FROM command_keys`)
		id, job := b.started()
		victim, ended := pgtest.NewEnded(t, b.db, last)
		err := b.on(victim).work(job)
		alive = err == nil
		if events := b.actions(id); len(events) == 1 == (err == nil) || alive && last < 6 {
			t.Fatalf("ended %t ahead of step %d (%v): %v", ended.Load(), last, err, events)
		}
		if err := b.work(job); err != nil && !errors.Is(err, metered.ErrEnded) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(worked, b.actions(id)); diff != "" {
			t.Errorf("ended ahead of step %d: events (-want +got):\n%s", last, diff)
		}
		if n := b.count(`SELECT count(*) FROM budget_ledger l JOIN river.river_job j ON j.id = $1
			WHERE l.reserved_at = (j.metadata -> 'metered' -> 'reservations' -> 0 ->> 'reserved_at')::timestamptz AND l.amount = -10`, job.ID); n != 1 {
			t.Errorf("ended ahead of step %d: %d settlements", last, n)
		}
		b.exec(`DELETE FROM budget_ledger`)
		b.exec(`DELETE FROM budget_scopes`)
	}
}

// River repeats a job whose run committed but was lost. The command still has
// one event and one settlement.
func TestRiverRunsAgain(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var (
		lock sync.Mutex
		runs []error
	)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[transcodeArgs]) error {
		err := b.work(job.JobRow)
		lock.Lock()
		defer lock.Unlock()
		runs = append(runs, err)
		switch {
		case len(runs) == 1:
			return errors.New("lost") // as if the process had died after its commit
		case errors.Is(err, metered.ErrEnded):
			return nil
		default:
			return err
		}
	}))
	client, err := river.NewClient(riverpgxv5.New(b.db), &river.Config{
		Schema: migrations.RiverSchema, Queues: map[string]river.QueueConfig{"assets": {MaxWorkers: 1}}, Workers: workers,
		Logger: slog.New(slog.DiscardHandler), RetryPolicy: atOnce{},
	})
	b.must(err)
	completed, cancel := client.Subscribe(river.EventKindJobCompleted)
	defer cancel()
	b.must(client.Start(t.Context()))
	t.Cleanup(func() { _ = client.Stop(context.Background()) })
	id, _ := b.started()
	select {
	case <-completed:
	case <-time.After(waitMax):
		t.Fatal("the job is not completed")
	}
	lock.Lock()
	defer lock.Unlock()
	if len(runs) != 2 || runs[0] != nil || !errors.Is(runs[1], metered.ErrEnded) {
		t.Errorf("the runs: %v", runs)
	}
	if diff := cmp.Diff(worked, b.actions(id)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if sum := b.sum("global:hourly", time.Hour); sum != 30 {
		t.Errorf("%d counts after the settlement", sum)
	}
}

// atOnce is a retry policy without a wait.
type atOnce struct{}

func (atOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

// A job without a command, and an invalid result, are refused.
func TestCompleteRefuses(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	_, job := b.started()
	foreign := *job
	foreign.Metadata = []byte(`{}`)
	b.must(b.inTx(func(tx pgx.Tx) error {
		if err := b.commands.CompleteTx(t.Context(), tx, &foreign, nil); !errors.Is(err, metered.ErrUnknown) {
			t.Errorf("another's job: %v", err)
		}
		if err := b.commands.CompleteTx(t.Context(), tx, job, json.RawMessage(`"\u0000"`)); !isInvalid(err, "result") {
			t.Errorf("NUL: %v", err)
		}
		if err := b.commands.FailTx(t.Context(), tx, job, nil); !isInvalid(err, "cause") {
			t.Errorf("no cause: %v", err)
		}
		return b.commands.CompleteTx(t.Context(), tx, job, json.RawMessage(`[1]`))
	}))
}
