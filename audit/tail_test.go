package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
)

const (
	writers     = 8
	transitions = 10_000
	targets     = 40
)

// 8 writers make 10,000 transitions, some in long transactions that began
// before rows with lower ids were written. All are delivered, in order for each
// target. A reader by id > last runs at the same time and misses some of them,
// which shows that the test can fail.
func TestTailIsCompleteAndInOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ids := makeTargets(t, db)
	sub, err := audit.Subscribe(t.Context(), db, "orders", audit.SubscriptionConfig{FromBeginning: true, Batch: 97})
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	var group, readers sync.WaitGroup
	var naive []int64
	readers.Go(func() { naive = readByLastID(t, db, written) })
	for w := range writers {
		group.Go(func() { writeTransitions(t, db, ids, uint64(w), transitions/writers) })
	}
	go func() { group.Wait(); close(written) }()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var got []audit.Record
	take := func(_ context.Context, d *audit.Delivery) error {
		got = append(got, d.Records...)
		return nil
	}
	for len(got) < transitions && !t.Failed() {
		if _, err := sub.RunOnce(ctx, take); err != nil {
			t.Fatalf("after %d of %d transitions: %v", len(got), transitions, err)
		}
	}
	<-written
	readers.Wait()
	next := make(map[uuid.UUID]int)
	for _, r := range got {
		var state struct{ Step int }
		if err := json.Unmarshal(r.After, &state); err != nil {
			t.Fatal(err)
		}
		if next[r.TargetID]++; state.Step != next[r.TargetID] {
			t.Fatalf("target %s: step %d was delivered, want %d", r.TargetID, state.Step, next[r.TargetID])
		}
	}
	if len(naive) == transitions {
		t.Error("a reader by id > last missed nothing: the writers did not overlap, so the test proves nothing")
	}
	t.Logf("the tail delivered %d records; id > last read %d", len(got), len(naive))
}

// makeTargets makes rows whose lock orders the transitions, like a
// reservation's row lock.
func makeTargets(t *testing.T, db *pgxpool.Pool) []uuid.UUID {
	t.Helper()
	if _, err := db.Exec(t.Context(), `CREATE TABLE target (id uuid PRIMARY KEY, step int NOT NULL DEFAULT 0)`); err != nil {
		t.Fatal(err)
	}
	ids := make([]uuid.UUID, targets)
	for i := range ids {
		ids[i] = uuid.New()
		if _, err := db.Exec(t.Context(), `INSERT INTO target (id) VALUES ($1)`, ids[i]); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// writeTransitions makes n transitions, one to five per transaction, on targets
// in sorted order. Some transactions take their id long before they write.
func writeTransitions(t *testing.T, db *pgxpool.Pool, ids []uuid.UUID, seed uint64, n int) {
	random := rand.New(rand.NewPCG(seed, 1))
	for done := 0; done < n && !t.Failed(); {
		size := min(1+random.IntN(5), n-done)
		chosen := random.Perm(targets)[:size]
		slices.SortFunc(chosen, func(a, b int) int { return slices.Compare(ids[a][:], ids[b][:]) })
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			if random.IntN(4) == 0 {
				if _, err := tx.Exec(t.Context(), `SELECT pg_current_xact_id(), pg_sleep($1)`, random.Float64()*0.02); err != nil {
					return err
				}
			}
			for _, i := range chosen {
				var step int
				if err := tx.QueryRow(t.Context(), `UPDATE target SET step = step + 1 WHERE id = $1 RETURNING step`, ids[i]).Scan(&step); err != nil {
					return err
				}
				entry := audit.Entry{TenantID: uuid.Nil, TargetID: ids[i], Action: "target.stepped", After: json.RawMessage(fmt.Sprintf(`{"step":%d}`, step))}
				if err := audit.WriteTx(t.Context(), tx, []audit.Entry{entry}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		done += size
	}
}

// readByLastID is the naive reader, which reads the ids above the last one it
// has seen.
func readByLastID(t *testing.T, db *pgxpool.Pool, written chan struct{}) (seen []int64) {
	var last int64
	for {
		final := isClosed(written)
		rows, err := db.Query(t.Context(), `SELECT audit_id FROM audit_log WHERE audit_id > $1 ORDER BY audit_id`, last)
		if err != nil {
			t.Error(err)
			return seen
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Error(err)
			return seen
		}
		seen = append(seen, ids...)
		if len(ids) > 0 {
			last = ids[len(ids)-1]
		}
		if final {
			return seen
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A record whose earlier state cannot be read is delivered with that state as it
// is stored, and does not stop the subscription.
func TestDamagedStateIsDelivered(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "damaged", audit.SubscriptionConfig{FromBeginning: true})
	pgtest.Exec(t, db, `
		INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, resource_kind, resource_key, holder_id, quantity, expires_at, before)
		SELECT gen_random_uuid(), gen_random_uuid(), 'reservation.extended', 'system', 'hall.seat', 'A1', 'guest', 1, now(), before
		FROM unnest(ARRAY['{"expires_at": "soon"}', NULL]::jsonb[]) AS before`)
	var got []audit.Record
	pgtest.Until(t, "both are delivered", func() bool {
		_, err := sub.RunOnce(t.Context(), func(_ context.Context, d *audit.Delivery) error {
			got = append(got, d.Records...)
			return nil
		})
		pgtest.Must(t, err)
		return len(got) == 2
	})
	if before := string(got[0].Before); before != `{"expires_at": "soon"}` || len(got[0].After) == 0 {
		t.Errorf("delivered %s and %s", before, got[0].After)
	}
}
