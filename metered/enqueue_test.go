package metered_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
)

// transcode returns a job for tests.
func (b *bundle) transcode(key string) metered.Job {
	return metered.Job{TenantID: b.tenant, Args: transcodeArgs{7}, InsertOpts: &river.InsertOpts{Queue: "assets"}, IdempotencyKey: key}
}

func (b *bundle) enqueue(job metered.Job) (id uuid.UUID, created bool) {
	b.t.Helper()
	id, created, err := b.commands.Enqueue(context.Background(), job)
	b.must(err)
	return id, created
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	job := b.transcode("key-1")
	job.InsertOpts = &river.InsertOpts{Queue: "assets", MaxAttempts: 7, Priority: 3, Tags: []string{"video"}, Metadata: []byte(`{"mine": 1}`)}
	job.Origin = audit.Origin{Actor: audit.User("ann"), Reason: "asked for"}
	job.Reservations = []metered.Reservation{{Scope: "s", ReservedAt: time.UnixMicro(1_700_000_000_000_001).UTC(), Amount: 5}}
	id, created, err := b.commands.Enqueue(telemetry.WithCorrelation(t.Context(), "corr-1"), job)
	b.must(err)
	if !created {
		t.Error("the first is not created")
	}
	var (
		queue, kind, args, state string
		attempts, priority       int
		meta                     []byte
	)
	b.must(b.db.QueryRow(t.Context(), `SELECT queue, kind || tags[1] || (metadata ->> 'mine'), args::text, state::text, max_attempts, priority, metadata FROM river.river_job`).
		Scan(&queue, &kind, &args, &state, &attempts, &priority, &meta))
	got := fmt.Sprintln(queue, kind, args, state, attempts, priority)
	if diff := cmp.Diff(fmt.Sprintln("assets", "transcodevideo1", `{"asset": 7}`, "available", 7, 3), got); diff != "" {
		t.Errorf("the job's row (-want +got):\n%s", diff)
	}
	ref, err := metered.CommandOf(meta)
	b.must(err)
	if diff := cmp.Diff(metered.CommandRef{TenantID: b.tenant, CommandID: id, Reservations: job.Reservations, CorrelationID: "corr-1"}, ref); diff != "" {
		t.Errorf("the job's command (-want +got):\n%s", diff)
	}
	events, err := audit.History(t.Context(), b.db, b.tenant, id)
	b.must(err)
	if len(events) != 1 || events[0].Action != "job.created" || events[0].Actor != job.Origin.Actor || events[0].CorrelationID != "corr-1" ||
		events[0].Before != nil || events[0].Reason != "asked for" {
		t.Errorf("its events: %+v", events)
	}
	var after map[string]any
	b.must(json.Unmarshal(events[0].After, &after))
	if diff := cmp.Diff(map[string]any{"queue": "assets", "kind": "transcode", "job_id": float64(1), "state": "queued"}, after); diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
}

// The key identifies one job, even when its row has been deleted. The same key
// of another tenant or queue identifies another job.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id, _ := b.enqueue(b.transcode("key-1"))
	same := b.transcode("key-1")
	same.Args, same.InsertOpts = raw{"transcode", "{ \"asset\":7 }\n"}, &river.InsertOpts{Queue: "assets", Priority: 4}
	for what, prune := range map[string]string{"at once": `SELECT`, "after River has deleted it": `DELETE FROM river.river_job`} {
		b.exec(prune)
		if again, created := b.enqueue(same); again != id || created {
			t.Errorf("%s: id %s, created %t, want %s", what, again, created, id)
		}
	}
	args, kind := b.transcode("key-1"), b.transcode("key-1")
	args.Args, kind.Args = transcodeArgs{8}, raw{"encode", `{"asset": 7}`}
	for _, job := range []metered.Job{args, kind} {
		if _, _, err := b.commands.Enqueue(t.Context(), job); !errors.Is(err, metered.ErrKeyReused) {
			t.Errorf("%+v under the same key: %v", job.Args, err)
		}
	}
	queue, tenant, none := args, args, b.transcode("")
	queue.InsertOpts, tenant.TenantID = &river.InsertOpts{Queue: "other"}, uuid.New()
	seen := map[uuid.UUID]bool{id: true}
	for _, job := range []metered.Job{queue, tenant, none, none} {
		other, created := b.enqueue(job)
		if !created || seen[other] {
			t.Errorf("%+v: id %s, created %t", job, other, created)
		}
		seen[other] = true
	}
	if got := b.rows(); got != (rows{Keys: 5, Jobs: 4, Events: 5}) {
		t.Errorf("rows %+v", got)
	}
	if n, err := b.commands.PurgeKeys(t.Context(), 0, 3); err != nil || n != 3 {
		t.Errorf("purged %d keys, %v", n, err)
	}
	if again, created := b.enqueue(b.transcode("key-1")); again == id || !created {
		t.Error("a key that was purged is still known")
	}
}

// Of many concurrent callers, one creates the job and all receive its id.
func TestEnqueueAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var (
		lock   sync.Mutex
		seen   = map[uuid.UUID]int{}
		made   int
		caller sync.WaitGroup
	)
	for range 200 {
		caller.Go(func() {
			id, created, err := b.commands.Enqueue(t.Context(), b.transcode("key-1"))
			if err != nil {
				t.Error(err)
			}
			lock.Lock()
			defer lock.Unlock()
			seen[id]++
			if created {
				made++
			}
		})
	}
	caller.Wait()
	if len(seen) != 1 || made != 1 {
		t.Errorf("%d ids, %d created", len(seen), made)
	}
	if got := b.rows(); got != (rows{Keys: 1, Jobs: 1, Events: 1}) {
		t.Errorf("rows %+v", got)
	}
}

// An enqueue that is rolled back has no effect, and a caller that waited for it
// creates the job.
func TestEnqueueRolledBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first, err := b.db.Begin(t.Context())
	b.must(err)
	lost, created, err := b.commands.EnqueueTx(t.Context(), first, b.transcode("key-1"))
	b.must(err)
	if got := b.rows(); !created || got != (rows{}) {
		t.Errorf("before the end of the transaction other sessions see %+v", got)
	}
	second := make(chan uuid.UUID, 1)
	go func() {
		id, created, err := b.commands.Enqueue(t.Context(), b.transcode("key-1"))
		if err != nil || !created {
			t.Errorf("the second: created %t, %v", created, err)
		}
		second <- id
	}()
	pgtest.UntilBlocked(t, b.db, 1)
	b.must(first.Rollback(t.Context()))
	if id := <-second; id == lost {
		t.Error("the second has the id of the job that was rolled back")
	}
	if got := b.rows(); got != (rows{Keys: 1, Jobs: 1, Events: 1}) {
		t.Errorf("rows %+v", got)
	}
	if _, err := b.commands.Status(t.Context(), b.tenant, lost); !errors.Is(err, metered.ErrUnknown) {
		t.Errorf("the status of the job that was rolled back: %v", err)
	}
}

func TestEnqueueRefusesBadInput(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for field, change := range map[string]func(*metered.Job){
		"tenant_id":       func(j *metered.Job) { j.TenantID = uuid.Nil },
		"args":            func(j *metered.Job) { j.Args = nil },
		"kind":            func(j *metered.Job) { j.Args = raw{"", `{}`} },
		"queue":           func(j *metered.Job) { j.InsertOpts.Queue = "Assets!" },
		"tags":            func(j *metered.Job) { j.InsertOpts.Tags = []string{"good", "-bad"} },
		"metadata":        func(j *metered.Job) { j.InsertOpts.Metadata = []byte(`{"metered": 1}`) },
		"unique_opts":     func(j *metered.Job) { j.InsertOpts.UniqueOpts.ByArgs = true },
		"scheduled_at":    func(j *metered.Job) { j.InsertOpts.ScheduledAt = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"idempotency_key": func(j *metered.Job) { j.IdempotencyKey = "a\x00" },
		"correlation_id":  func(j *metered.Job) { j.Origin.CorrelationID = "\xff" },
		"max_attempts":    func(j *metered.Job) { j.InsertOpts.MaxAttempts = -1 },
		"priority":        func(j *metered.Job) { j.InsertOpts.Priority = 5 },
	} {
		job := b.transcode("key")
		change(&job)
		if _, _, err := b.commands.Enqueue(t.Context(), job); !isInvalid(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	job := b.transcode("key")
	for _, args := range []river.JobArgs{raw{"transcode", `[1]`}, raw{"transcode", `{`}, raw{"transcode", `{"a": "\u0000"}`}, endless{}} {
		job.Args = args
		if _, _, err := b.commands.Enqueue(t.Context(), job); !isInvalid(err, "args") {
			t.Errorf("%+v: %v", args, err)
		}
	}
	if got := b.rows(); got != (rows{}) {
		t.Errorf("the refused calls left %+v", got)
	}
	job.Args = raw{"transcode", `{"a": "\\u0000"}`}
	if _, created := b.enqueue(job); !created {
		t.Error("an escaped backslash before u0000 is not a NUL")
	}
}

// Reading a status changes nothing, and returns all that is stored.
func TestStatus(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	later := b.transcode("later")
	scheduledAt := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	later.InsertOpts.ScheduledAt = scheduledAt
	id, _ := b.enqueue(later)
	status, err := b.commands.Status(t.Context(), b.tenant, id)
	b.must(err)
	if status.State != "queued" || !status.ScheduledAt.Equal(scheduledAt) || status.FinishedAt != nil || status.IdempotencyKey != "later" {
		t.Errorf("scheduled: %+v", status)
	}
	ended := `finalized_at = now(), attempt = 2, state = `
	for _, c := range []struct {
		change string
		want   string
	}{
		{`UPDATE river.river_job SET state = 'available'`, "queued"},
		{`UPDATE river.river_job SET state = 'running', attempt = 1`, "running"},
		{`UPDATE river.river_job SET state = 'retryable'`, "queued"},
		{`UPDATE river.river_job SET ` + ended + `'completed'`, "done"},
		{`UPDATE river.river_job SET ` + ended + `'discarded'`, "failed"},
		{`UPDATE river.river_job SET ` + ended + `'cancelled'`, "cancelled"},
		{`DELETE FROM river.river_job`, "ended"},
	} {
		b.exec(c.change)
		before := b.count(`SELECT count(*) FROM audit_log`)
		status, err := b.commands.StatusByKey(t.Context(), b.tenant, "assets", "later")
		b.must(err)
		if status.State != c.want || status.CommandID != id || (status.FinishedAt != nil) != (status.Attempt == 2) {
			t.Errorf("after %s: %+v", c.change, status)
		}
		if after := b.count(`SELECT count(*) FROM audit_log`); after != before {
			t.Error("a read left a record")
		}
	}
	if _, err := b.commands.Status(t.Context(), uuid.New(), id); !errors.Is(err, metered.ErrUnknown) {
		t.Errorf("another tenant: %v", err)
	}
}

type transcodeArgs struct {
	Asset int `json:"asset"`
}

func (transcodeArgs) Kind() string { return "transcode" }

// raw are arguments of a kind that encode to the given JSON.
type raw struct{ kind, json string }

func (a raw) Kind() string { return a.kind }

func (a raw) MarshalJSON() ([]byte, error) { return []byte(a.json), nil }

// endless are arguments that cannot be encoded.
type endless struct{ Never chan int }

func (endless) Kind() string { return "transcode" }

// urgent are arguments with insert options.
type urgent struct{}

func (urgent) Kind() string { return "urgent" }

func (urgent) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: "urgent", MaxAttempts: 2, Priority: 2, Tags: []string{"own"}}
}

// The options are those of River. A missing one is taken from the arguments, or
// else is River's default.
func TestInsertOpts(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for _, job := range []metered.Job{
		{Args: urgent{}},
		{Args: urgent{}, InsertOpts: &river.InsertOpts{Priority: 4, Tags: []string{"given"}, Pending: true}},
		{Args: transcodeArgs{1}},
	} {
		job.TenantID = b.tenant
		b.enqueue(job)
	}
	found, err := b.db.Query(t.Context(), `SELECT concat_ws(' ', queue, max_attempts, priority, tags, state) FROM river.river_job ORDER BY id`)
	b.must(err)
	got, err := pgx.CollectRows(found, pgx.RowTo[string])
	b.must(err)
	if diff := cmp.Diff([]string{"urgent 2 2 {own} available", "urgent 2 4 {given} pending", "default 25 1 {} available"}, got); diff != "" {
		t.Errorf("the jobs (-want +got):\n%s", diff)
	}
}

// A worker of any River client works the job, reads its command, and settles
// its cost.
func TestWorked(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	worked := make(chan int, 1)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[transcodeArgs]) error {
		ref, err := metered.CommandOf(job.Metadata)
		if err != nil {
			return err
		}
		if _, err := b.budgets.Settle(ctx, ref.TenantID, ref.Reservations[0], 30); err != nil {
			return err
		}
		worked <- job.Args.Asset
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(b.db), &river.Config{
		Schema: migrations.RiverSchema, Queues: map[string]river.QueueConfig{"assets": {MaxWorkers: 1}}, Workers: workers,
		Logger: slog.New(slog.DiscardHandler),
	})
	b.must(err)
	b.must(client.Start(t.Context()))
	t.Cleanup(func() { _ = client.Stop(context.Background()) })
	started, err := b.commands.Run(t.Context(), metered.Command{
		Reserve: []metered.Charge{charge("s", 50, 100, time.Hour)}, Start: b.transcode("key"),
	})
	b.must(err)
	select {
	case asset := <-worked:
		if asset != 7 {
			t.Errorf("worked asset %d", asset)
		}
	case <-time.After(waitMax):
		t.Fatal("no worker has worked the job")
	}
	if sum := b.sum("s", time.Hour); sum != 30 {
		t.Errorf("%d counts after the settlement", sum)
	}
	pgtest.Until(t, "the command is done", func() bool {
		status, err := b.commands.Status(t.Context(), b.tenant, started.CommandID)
		b.must(err)
		return status.State == "done"
	})
}

// With a pool of the caller, the verbs also work in a transaction at a stricter
// level.
func TestStricterTransaction(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	b.must(pgx.BeginTxFunc(t.Context(), b.db, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
		_, err := b.commands.RunTx(t.Context(), tx, b.command(token))
		return err
	}))
	if got := b.rows(); got != everything {
		t.Errorf("rows %+v", got)
	}
}
