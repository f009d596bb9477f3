package audit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
)

const effectsSQL = `CREATE TABLE effect (audit_id bigint NOT NULL)`

// effect writes a subscriber's effects and its checkpoint in one transaction.
// It calls at between the steps, and stops if at returns an error.
func effect(ctx context.Context, db *pgxpool.Pool, d *audit.Delivery, at func(stage int) error) error {
	if err := at(0); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, r := range d.Records {
			if _, err := tx.Exec(ctx, `INSERT INTO effect (audit_id) VALUES ($1)`, r.AuditID); err != nil {
				return err
			}
		}
		if err := at(1); err != nil {
			return err
		}
		if err := d.CheckpointTx(ctx, tx); err != nil {
			return err
		}
		return at(2)
	})
	if err != nil {
		return err
	}
	return at(3)
}

const stages = 4

// wantEffects fails the test unless each of n records had its effect once.
func wantEffects(t *testing.T, db *pgxpool.Pool, n int) {
	t.Helper()
	effects, distinct := ask[int](t, db, `SELECT count(*) FROM effect`), ask[int](t, db, `SELECT count(DISTINCT audit_id) FROM effect`)
	if effects != n || distinct != n {
		t.Errorf("%d effects of %d records, want %d of %d", effects, distinct, n, n)
	}
}

// A subscriber misses no record if it dies at any step, or if the server ends
// its sessions at any step. What it writes in the transaction of its checkpoint
// takes effect once.
func TestSubscriberDies(t *testing.T) {
	t.Parallel()
	const records, batch = 120, 7
	for name, sessions := range map[string]bool{"the process dies": false, "its sessions are ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			execute(t, db, effectsSQL)
			victims := victimPool(t, db)
			config := audit.SubscriptionConfig{FromBeginning: true, Batch: batch}
			subscribe(t, db, "effects", config)
			writeTransitions(t, db, makeTargets(t, db), 7, records)
			died := errors.New("died")
			reached := make(map[int]int)
			pgtest.Until(t, "all records are delivered", func() bool {
				expireLease(t, db, "effects")
				sub, err := audit.Subscribe(t.Context(), victims, "effects", config)
				if err != nil && sessions {
					return false // its session was ended before
				}
				if err != nil {
					t.Fatal(err)
				}
				_, err = sub.RunOnce(t.Context(), func(ctx context.Context, d *audit.Delivery) error {
					return effect(ctx, victims, d, func(stage int) error {
						reached[stage]++
						switch {
						case reached[stage]%(stages+1) != stage: // fail at each stage now and then
							return nil
						case sessions:
							endSessions(t, db)
							return nil
						default:
							return died
						}
					})
				})
				if err != nil && !errors.Is(err, died) && !sessions {
					t.Fatal(err)
				}
				return state(t, db, "effects").Lag == 0
			})
			wantEffects(t, db, records)
			if len(reached) != stages {
				t.Errorf("only %d of %d stages were reached", len(reached), stages)
			}
		})
	}
}

// Sessions end at random moments, between any two statements of the
// subscription.
func TestSessionsDieAtRandom(t *testing.T) {
	t.Parallel()
	const records = 60
	db := pgtest.New(t)
	execute(t, db, effectsSQL)
	victims := victimPool(t, db)
	config := audit.SubscriptionConfig{FromBeginning: true, Batch: 3}
	subscribe(t, db, "effects", config)
	writeTransitions(t, db, makeTargets(t, db), 11, records)
	ctx, stop := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	killer.Go(func() {
		// The pauses grow, so that even a slow machine finishes a batch during
		// one of them.
		for seconds := 0.02; ctx.Err() == nil; seconds *= 1.03 {
			_, _ = db.Exec(ctx, `SELECT pg_terminate_backend(pid), pg_sleep($1) FROM pg_stat_activity
				WHERE application_name = 'victim' AND datname = current_database() ORDER BY random() LIMIT 1`, seconds)
		}
	})
	defer killer.Wait()
	defer stop()
	var sub *audit.Subscription
	failures := 0
	pgtest.Until(t, "all records are delivered", func() bool {
		if sub == nil {
			sub, _ = audit.Subscribe(ctx, victims, "effects", config) // nil if its session was ended
			return false
		}
		if _, err := sub.RunOnce(ctx, func(ctx context.Context, d *audit.Delivery) error {
			return effect(ctx, victims, d, func(int) error { return nil })
		}); err != nil {
			failures++
		}
		return state(t, db, "effects").Lag == 0
	})
	stop()
	killer.Wait()
	wantEffects(t, db, records)
	t.Logf("%d polls failed", failures)
}

// victimPool is a pool of the same database whose sessions a test ends.
func victimPool(t *testing.T, db *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := db.Config()
	config.ConnConfig.RuntimeParams["application_name"] = "victim"
	victims, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(victims.Close)
	return victims
}

// endSessions ends the victims' sessions and waits until they have ended.
func endSessions(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	execute(t, db, `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'victim' AND datname = current_database()`)
}

const processURL = "AUDIT_TEST_SUBSCRIBER_URL"

// TestSubscriberProcess is the process that TestSubscriberIsKilled kills. It
// does nothing if run alone.
func TestSubscriberProcess(t *testing.T) { //nolint:paralleltest // a separate program
	address := os.Getenv(processURL)
	if address == "" {
		return
	}
	own, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	db := victimPool(t, own)
	sub := subscribe(t, db, "effects", audit.SubscriptionConfig{Batch: 3})
	err = sub.Run(t.Context(), func(ctx context.Context, d *audit.Delivery) error {
		return effect(ctx, db, d, func(stage int) error { fmt.Println("stage", stage); return nil })
	}, func(err error) { t.Log(err) })
	t.Fatal("it ended without being killed:", err)
}

// Subscribers are killed with kill -9 in different steps of their work. After
// each, another one takes over.
func TestSubscriberIsKilled(t *testing.T) {
	t.Parallel()
	const records, kills = 60, 8
	db := pgtest.New(t)
	execute(t, db, effectsSQL)
	subscribe(t, db, "effects", audit.SubscriptionConfig{FromBeginning: true})
	writeSteps(t, db, records)
	for n := range kills {
		killAfter(t, db.Config().ConnString(), 1+n) // kill it twice at each stage, each time in a later delivery
		pgtest.Until(t, "its sessions end, after what they were doing", func() bool {
			return pgtest.Int(t, db, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'victim' AND datname = current_database()`) == 0
		})
		expireLease(t, db, "effects")
	}
	sub := subscribe(t, db, "effects", audit.SubscriptionConfig{})
	pgtest.Until(t, "all records are delivered", func() bool {
		if _, err := sub.RunOnce(t.Context(), func(ctx context.Context, d *audit.Delivery) error {
			return effect(ctx, db, d, func(int) error { return nil })
		}); err != nil {
			t.Fatal(err)
		}
		return state(t, db, "effects").Lag == 0
	})
	wantEffects(t, db, records)
}

// killAfter starts a subscriber and kills it once it has reported that many
// steps.
func killAfter(t *testing.T, address string, steps int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSubscriberProcess$")
	program.Env = append(os.Environ(), processURL+"="+address)
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); steps > 0 && lines.Scan(); steps-- {
	}
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait() // killed
	if steps > 0 {
		t.Fatal("the subscriber ended before it was killed")
	}
}
