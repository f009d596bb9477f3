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
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
)

// transcode is a job of the tests.
func (b *bundle) transcode(key string) metered.Job {
	return metered.Job{TenantID: b.tenant, Queue: "assets", Kind: "transcode", Payload: []byte(`{"asset": 7}`), IdempotencyKey: key}
}

func (b *bundle) enqueue(job metered.Job) (id uuid.UUID, created bool) {
	b.t.Helper()
	id, created, err := b.jobs.Enqueue(context.Background(), job)
	b.must(err)
	return id, created
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	job := b.transcode("key-1")
	job.MaxAttempts, job.Priority = 7, 3
	job.Origin = audit.Origin{Actor: audit.User("ann"), Reason: "asked for"}
	job.Reservations = []metered.Reservation{{Scope: "s", ReservedAt: time.UnixMicro(1_700_000_000_000_001).UTC(), Amount: 5}}
	id, created, err := b.jobs.Enqueue(telemetry.WithCorrelation(t.Context(), "corr-1"), job)
	b.must(err)
	if !created {
		t.Error("the first is not created")
	}
	var (
		queue, kind, args, state string
		attempts, priority       int
		meta                     []byte
	)
	b.must(b.db.QueryRow(t.Context(), `SELECT queue, kind, args::text, state::text, max_attempts, priority, metadata FROM river.river_job`).
		Scan(&queue, &kind, &args, &state, &attempts, &priority, &meta))
	got := fmt.Sprintln(queue, kind, args, state, attempts, priority)
	if diff := cmp.Diff(fmt.Sprintln("assets", "transcode", `{"asset": 7}`, "available", 7, 3), got); diff != "" {
		t.Errorf("the job's row (-want +got):\n%s", diff)
	}
	ref, err := metered.CommandOf(meta)
	b.must(err)
	if diff := cmp.Diff(metered.CommandRef{TenantID: b.tenant, CommandID: id, Reservations: job.Reservations}, ref); diff != "" {
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
	if diff := cmp.Diff(map[string]any{"queue": "assets", "kind": "transcode", "job_id": float64(1)}, after); diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
}

// The key stands for one job, whatever is left of that job; another tenant's or queue's is another.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id, _ := b.enqueue(b.transcode("key-1"))
	spaced := b.transcode("key-1")
	spaced.Payload = []byte("{ \"asset\":7 }\n")
	for what, prune := range map[string]string{"at once": `SELECT`, "when River has forgotten": `DELETE FROM river.river_job`} {
		b.exec(prune)
		if again, created := b.enqueue(spaced); again != id || created {
			t.Errorf("%s: id %s, created %t, want %s", what, again, created, id)
		}
	}
	payload, kind := b.transcode("key-1"), b.transcode("key-1")
	payload.Payload, kind.Kind = []byte(`{"asset": 8}`), "encode"
	for _, job := range []metered.Job{payload, kind} {
		if _, _, err := b.jobs.Enqueue(t.Context(), job); !errors.Is(err, metered.ErrKeyReused) {
			t.Errorf("%s %s under the same key: %v", job.Kind, job.Payload, err)
		}
	}
	queue, tenant, none := payload, payload, b.transcode("")
	queue.Queue, tenant.TenantID = "other", uuid.New()
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
	if n, err := b.jobs.PurgeKeys(t.Context(), 0, 3); err != nil || n != 3 {
		t.Errorf("purged %d keys, %v", n, err)
	}
	if again, created := b.enqueue(b.transcode("key-1")); again == id || !created {
		t.Error("a key that was purged is still known")
	}
}

// Any number of callers at once: one creates the job, all get its id.
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
			id, created, err := b.jobs.Enqueue(t.Context(), b.transcode("key-1"))
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

// Nothing of an enqueue that is rolled back can be seen, and who waited for it creates the job.
func TestEnqueueRolledBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first, err := b.db.Begin(t.Context())
	b.must(err)
	lost, created, err := b.jobs.EnqueueTx(t.Context(), first, b.transcode("key-1"))
	b.must(err)
	if got := b.rows(); !created || got != (rows{}) {
		t.Errorf("before the end of the transaction others see %+v", got)
	}
	second := make(chan uuid.UUID, 1)
	go func() {
		id, created, err := b.jobs.Enqueue(t.Context(), b.transcode("key-1"))
		if err != nil || !created {
			t.Errorf("the second: created %t, %v", created, err)
		}
		second <- id
	}()
	b.awaitWaiting(1)
	b.must(first.Rollback(t.Context()))
	if id := <-second; id == lost {
		t.Error("the second has the id of what was rolled back")
	}
	if got := b.rows(); got != (rows{Keys: 1, Jobs: 1, Events: 1}) {
		t.Errorf("rows %+v", got)
	}
	if _, err := b.jobs.Status(t.Context(), b.tenant, lost); !errors.Is(err, metered.ErrUnknownCommand) {
		t.Errorf("the status of what was rolled back: %v", err)
	}
}

func TestEnqueueRefusesBadInput(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for field, change := range map[string]func(*metered.Job){
		"queue":           func(j *metered.Job) { j.Queue = "Assets!" },
		"kind":            func(j *metered.Job) { j.Kind = "" },
		"payload":         func(j *metered.Job) { j.Payload = []byte(`[1]`) },
		"idempotency_key": func(j *metered.Job) { j.IdempotencyKey = "a\x00" },
		"correlation_id":  func(j *metered.Job) { j.Origin.CorrelationID = "\xff" },
		"max_attempts":    func(j *metered.Job) { j.MaxAttempts = -1 },
		"priority":        func(j *metered.Job) { j.Priority = 5 },
	} {
		job := b.transcode("key")
		change(&job)
		if _, _, err := b.jobs.Enqueue(t.Context(), job); !isInvalid(err, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	job := b.transcode("key")
	job.Payload = []byte(`{"a": "\u0000"}`)
	if _, _, err := b.jobs.Enqueue(t.Context(), job); !isInvalid(err, "payload") {
		t.Errorf("NUL: %v", err)
	}
	job.Payload = []byte(`{"a": "\\u0000"}`)
	if _, created := b.enqueue(job); !created {
		t.Error("a backslash before u0000 is no NUL")
	}
}

// Reading a status changes nothing, and says as much as is known.
func TestStatus(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	later := b.transcode("later")
	later.ScheduledAt = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	id, _ := b.enqueue(later)
	status, err := b.jobs.Status(t.Context(), b.tenant, id)
	b.must(err)
	if status.State != metered.Queued || !status.ScheduledAt.Equal(later.ScheduledAt) || status.FinishedAt != nil || status.IdempotencyKey != "later" {
		t.Errorf("scheduled: %+v", status)
	}
	ended := `finalized_at = now(), attempt = 2, state = `
	for _, c := range []struct {
		change string
		want   metered.State
	}{
		{`UPDATE river.river_job SET state = 'available'`, metered.Queued},
		{`UPDATE river.river_job SET state = 'running', attempt = 1`, metered.Running},
		{`UPDATE river.river_job SET state = 'retryable'`, metered.Queued},
		{`UPDATE river.river_job SET ` + ended + `'completed'`, metered.Done},
		{`UPDATE river.river_job SET ` + ended + `'discarded'`, metered.Failed},
		{`UPDATE river.river_job SET ` + ended + `'cancelled'`, metered.Cancelled},
		{`DELETE FROM river.river_job`, metered.Ended},
	} {
		b.exec(c.change)
		before := b.count(`SELECT count(*) FROM audit_log`)
		status, err := b.jobs.StatusByKey(t.Context(), b.tenant, "assets", "later")
		b.must(err)
		if status.State != c.want || status.CommandID != id || (status.FinishedAt != nil) != (status.Attempt == 2) {
			t.Errorf("after %s: %+v", c.change, status)
		}
		if after := b.count(`SELECT count(*) FROM audit_log`); after != before {
			t.Error("a read left a record")
		}
	}
	if _, err := b.jobs.Status(t.Context(), uuid.New(), id); !errors.Is(err, metered.ErrUnknownCommand) {
		t.Errorf("another tenant: %v", err)
	}
}

type transcodeArgs struct {
	Asset int `json:"asset"`
}

func (transcodeArgs) Kind() string { return "transcode" }

// A worker of any River client works the job, knows whose it is, and settles what it cost.
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
	case <-time.After(patience):
		t.Fatal("nobody works the job")
	}
	if sum := b.sum("s", time.Hour); sum != 30 {
		t.Errorf("%d counts after the settlement", sum)
	}
	deadline, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for status := (metered.Status{}); status.State != metered.Done; {
		if status, err = b.jobs.Status(deadline, b.tenant, started.CommandID); err != nil {
			t.Fatal(err)
		}
	}
}

// A pool of the caller's: the verbs work in a transaction of a stricter level too.
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
