package requestrows_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// direct decides the carts "a" of a group as out of stock, and leaves the
// others. It calls meanwhile between the two round trips.
func direct(meanwhile func(), group ...requestrows.Submission) requestrows.Direct {
	return requestrows.Direct{
		Group: group,
		Queue: func(*pgx.Batch) {},
		Decide: func(_ context.Context, _ pgx.Tx, b *pgx.Batch, group []requests.Request) (views []requests.View, err error) {
			meanwhile()
			for _, r := range group {
				if r.CartID == "a" {
					r.Status, r.Reason = requests.Failed, requests.OutOfStock
					views = append(views, requests.View{Request: r})
				}
			}
			var decided []requests.Request
			var reasons []requests.Reason
			for i := range views {
				decided, reasons = append(decided, group[i]), append(reasons, views[i].Reason)
			}
			requestrows.QueueFailures(b, decided, reasons, group[0].CreatedAt)
			return views, nil
		},
	}
}

// insertDirectly inserts a group on a connection of its own, which is not in a
// transaction afterwards.
func insertDirectly(t *testing.T, b *testkit.Fixture, d requestrows.Direct) (requestrows.Inserted, error) {
	t.Helper()
	conn, err := b.DB.Acquire(t.Context())
	pgtest.Must(t, err)
	defer conn.Release()
	inserted, err := d.Insert(t.Context(), conn)
	if status := conn.Conn().PgConn().TxStatus(); status != 'I' {
		t.Errorf("the connection is left in state %c", status)
	}
	return inserted, err
}

func keyed(b *testkit.Fixture, cart, key string) requestrows.Submission {
	return requestrows.Submission{TenantID: b.Tenant, RequestID: requestrows.NewID(), CartID: cart, VariantID: "shoe", Quantity: 1, IdempotencyKey: key}
}

// A group that another transaction's row precedes, after the group was found to
// be new, fails as a whole: nothing is written, neither the requests nor the
// record. It waits for no key.
func TestDirectInsertionIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(t *testing.T, b *testkit.Fixture, s requestrows.Submission)
		code      string
		rows      int64
	}{
		"the key is used": {func(t *testing.T, b *testkit.Fixture, s requestrows.Submission) {
			s.RequestID = uuid.New()
			insert(t, b, nil, s)
		}, "23505", 1},
		"the id is used": {func(t *testing.T, b *testkit.Fixture, s requestrows.Submission) {
			s.IdempotencyKey = ""
			insert(t, b, nil, s)
		}, "23505", 1},
		"a synchronous call has used the key": {func(t *testing.T, b *testkit.Fixture, s requestrows.Submission) {
			pgtest.Must(t, pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
				_, err := tenants.ClaimKeyTx(t.Context(), tx, s.TenantID, s.IdempotencyKey, s.Fingerprint)
				if err != nil {
					return err
				}
				return requestrows.ReserveKeyTx(t.Context(), tx, s.TenantID, s.IdempotencyKey)
			}))
		}, "22P02", 0},
		"a call that has not finished uses the key": {func(_ *testing.T, b *testkit.Fixture, s requestrows.Submission) {
			b.Lock(`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, idempotency_key, fingerprint)
				VALUES ($1, gen_random_uuid(), 'normal', 'x', 'shoe', 1, $2, '')`, s.TenantID, s.IdempotencyKey)
		}, "55P03", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newNormal(t)
			group := []requestrows.Submission{keyed(b, "a", "1"), keyed(b, "b", "2"), keyed(b, "a", "3")}
			_, err := insertDirectly(t, b, direct(func() { tc.meanwhile(t, b, group[1]) }, group...))
			if pg.Code(err) != tc.code {
				t.Errorf("%v, want SQLSTATE %s", err, tc.code)
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != tc.rows {
				t.Errorf("%d requests, want the %d of the other transaction", n, tc.rows)
			}
			if n := b.Int(`SELECT count(*) FROM audit_log`); n != 0 {
				t.Errorf("%d audit rows, want none", n)
			}
		})
	}
}

// A group with a known key, or with one key twice, is not decided, and is
// inserted as queued.
func TestDirectInsertionOfKnownKeys(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	first := keyed(b, "a", "1")
	insert(t, b, nil, first)
	for name, group := range map[string][]requestrows.Submission{
		"known": {keyed(b, "a", "1"), keyed(b, "a", "2")},
		"twice": {keyed(b, "a", "3"), keyed(b, "a", "3"), keyed(b, "b", "")},
	} {
		inserted, err := insertDirectly(t, b, direct(func() { t.Errorf("%s: the group is decided", name) }, group...))
		pgtest.Must(t, err)
		for _, s := range group {
			r := inserted.Results[s.Ref()]
			if r.Err != nil || r.View.Status != requests.Queued || name == "known" && s.IdempotencyKey == "1" && r.View.RequestID != first.RequestID {
				t.Errorf("%s: key %q: %+v", name, s.IdempotencyKey, r)
			}
		}
		if len(inserted.Streams) != 1 {
			t.Errorf("%s: the streams %v have work, want one", name, inserted.Streams)
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
}

// The requests of a group that are not decided are queued in the stream to which
// they belong when they are inserted, above its mark. Here their variant becomes
// hot, and the mark moves, once the group is decided.
func TestDirectInsertionQueuesTheRest(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 10)
	hot := b.HotLane(queues.LaneConfig{})
	b.Submit("before", "shoe", 1)
	b.Tick(b.Lane(queues.LaneConfig{}))
	group := []requestrows.Submission{keyed(b, "a", "1"), keyed(b, "b", "2")}
	inserted, err := insertDirectly(t, b, direct(func() {
		pgtest.Must(t, lanes.Pin(t.Context(), b.DB, b.Inserter, b.Tenant, "shoe"))
		b.Until("the variant is hot", func() bool {
			b.Tick(hot)
			return b.Int(`SELECT count(*) FROM hot_variants WHERE state = 'hot'`) == 1
		})
	}, group...))
	pgtest.Must(t, err)
	decided, queued := inserted.Results[group[0].Ref()].View.Request, inserted.Results[group[1].Ref()].View.Request
	if decided.Status != requests.Failed || decided.Reason != requests.OutOfStock || decided.Sequence == 0 {
		t.Errorf("decided: %+v", decided)
	}
	if queued.Status != requests.Queued || queued.Lane != lanes.Hot || queued.Sequence <= b.Mark(queued) {
		t.Errorf("queued: %+v, want it in the hot lane above the mark %d", queued, b.Mark(queued))
	}
	b.TickUntil(hot, queued)
	b.Want(queued, requests.Done, "")
	b.Want(decided, requests.Failed, requests.OutOfStock)
}
