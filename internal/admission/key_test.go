package admission_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// The same call is sent fifty times concurrently through two processes. There
// are one row, one hold and fifty equal answers.
func TestOneKeyFiftyTimes(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 100)
	intakes := []*admission.Intake{b.Intake(admission.IntakeConfig{GroupMax: 8, QueueMax: 100}), b.Intake(admission.IntakeConfig{})}
	answers := make([]answer, 50)
	var callers sync.WaitGroup
	for i := range answers {
		callers.Go(func() {
			s := fingerprinted(add("a", "shoe", "key"), "body")
			s.TenantID = b.Tenant
			answers[i].request, answers[i].err = intakes[i%2].Submit(t.Context(), s)
		})
	}
	callers.Wait()
	for i, a := range answers {
		if diff := cmp.Diff(answers[0].request, a.request); a.err != nil || diff != "" {
			t.Errorf("answer %d: %v (-first +this):\n%s", i, a.err, diff)
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	if n := b.Int(`SELECT count(*) FROM reservations`); n != 1 {
		t.Errorf("%d holds, want 1", n)
	}
	replay := b.SubmitAs(fingerprinted(add("a", "shoe", "key"), "body"))
	if replay.RequestID != answers[0].request.RequestID || replay.Status != requests.Done {
		t.Errorf("a replay after the decision: %+v, want the first request, done", replay)
	}
	b.CheckInvariants()
}

// A key belongs to one call. Another body under it is refused, in the same
// group, in a later one, and in the caller's transaction. Another tenant may
// use the same key.
func TestKeyReused(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	stranger := fingerprinted(add("a", "shoe", "key"), "other body")
	stranger.TenantID = uuid.New()
	answers := gather(t, b, admission.IntakeConfig{Committers: 1}, []requestrows.Submission{
		fingerprinted(add("a", "shoe", "key"), "body"),
		fingerprinted(add("a", "shoe", "key"), "other body"),
		fingerprinted(add("a", "shoe", "key"), "body"),
		stranger,
		fingerprinted(add("a", "shoe", "other key"), "other body"),
		add("a", "shoe", ""),
		add("a", "shoe", ""),
	}).run()
	for i, want := range []error{nil, requestrows.ErrKeyReused, nil, nil, nil, nil, nil} {
		if !errors.Is(answers[i].err, want) {
			t.Errorf("caller %d: %v, want %v", i, answers[i].err, want)
		}
	}
	if answers[0].request.RequestID != answers[2].request.RequestID {
		t.Error("the same call got two requests")
	}
	if answers[3].request.RequestID == answers[0].request.RequestID {
		t.Error("a tenant received the request of another one")
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 5 {
		t.Errorf("%d rows, want 5", n)
	}
	in := b.Intake(admission.IntakeConfig{})
	s := fingerprinted(add("a", "shoe", "key"), "third body")
	s.TenantID = b.Tenant
	if _, err := in.Submit(t.Context(), s); !errors.Is(err, requestrows.ErrKeyReused) {
		t.Errorf("in a later group: %v, want ErrKeyReused", err)
	}
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		_, err := admission.SubmitTx(t.Context(), tx, b.Inserter, s)
		return err
	})
	if !errors.Is(err, requestrows.ErrKeyReused) {
		t.Errorf("in the caller's transaction: %v, want ErrKeyReused", err)
	}
}

// finishAtOnce claims and reserves a key, as a call that finishes at once does
// first.
func finishAtOnce(ctx context.Context, tx pgx.Tx, tenant uuid.UUID, key string) error {
	kept, err := tenants.ClaimKeyTx(ctx, tx, tenant, key, sha256.Sum256([]byte("checkout")))
	if err != nil {
		return err
	}
	if kept != nil {
		return errors.New("the key has an answer already")
	}
	return requestrows.ReserveKeyTx(ctx, tx, tenant, key)
}

func keep(ctx context.Context, tx pgx.Tx, tenant uuid.UUID, key string) error {
	return tenants.StoreAnswerTx(ctx, tx, tenant, key, tenants.Answer{StatusCode: 200, Body: []byte("{}")})
}

// A key that was used for a call that finishes at once is refused for a
// request, and the reverse. Of a group, only the request with that key is
// refused. Keys of every length that is valid for requests can be reserved.
func TestKeyOfAnotherSortOfCall(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	for _, key := range []string{"key", strings.Repeat("🧦", requestrows.KeyMax)} {
		err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
			if err := finishAtOnce(t.Context(), tx, b.Tenant, key); err != nil {
				return err
			}
			return keep(t.Context(), tx, b.Tenant, key)
		})
		pgtest.Must(t, err)
		answers := gather(t, b, admission.IntakeConfig{Committers: 1}, []requestrows.Submission{
			add("a", "shoe", key), add("a", "shoe", ""), add("a", "shoe", key),
		}).run()
		for i, want := range []error{requestrows.ErrKeyReused, nil, requestrows.ErrKeyReused} {
			if !errors.Is(answers[i].err, want) {
				t.Errorf("caller %d: %v, want %v", i, answers[i].err, want)
			}
		}
		stranger := add("a", "shoe", key)
		stranger.TenantID = uuid.New()
		if a := gather(t, b, admission.IntakeConfig{}, []requestrows.Submission{stranger}).run()[0]; a.err != nil {
			t.Errorf("another tenant's key: %v", a.err)
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 4 {
		t.Errorf("%d rows, want 4", n)
	}

	b.SubmitAs(add("a", "shoe", "taken"))
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error { return finishAtOnce(t.Context(), tx, b.Tenant, "taken") })
	if !errors.Is(err, requestrows.ErrKeyReused) {
		t.Errorf("the key of a request: %v, want ErrKeyReused", err)
	}
	if n := b.Int(`SELECT count(*) FROM idempotency_keys WHERE idempotency_key = 'taken'`); n != 0 {
		t.Error("the refused call has reserved the key")
	}
	err = pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error { return finishAtOnce(t.Context(), tx, uuid.New(), "taken") })
	if err != nil {
		t.Errorf("another tenant's request: %v", err)
	}
}

// A request and a call that finishes at once use one key concurrently. The
// second waits for the first. If the first commits, the second is refused. If
// the first rolls back, the second uses the key.
func TestKeyOfTwoCallsAtOnce(t *testing.T) {
	t.Parallel()
	for _, requestFirst := range []bool{true, false} {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("request first %t, commits %t", requestFirst, commits), func(t *testing.T) {
				t.Parallel()
				b := newNormal(t)
				request := func(tx pgx.Tx) error {
					s := add("a", "shoe", "key")
					s.TenantID = b.Tenant
					_, err := admission.SubmitTx(t.Context(), tx, b.Inserter, s)
					return err
				}
				atOnce := func(tx pgx.Tx) error {
					if err := finishAtOnce(t.Context(), tx, b.Tenant, "key"); err != nil {
						return err
					}
					return keep(t.Context(), tx, b.Tenant, "key")
				}
				first, second := request, atOnce
				if !requestFirst {
					first, second = atOnce, request
				}
				tx := b.Begin()
				pgtest.Must(t, first(tx))
				over := make(chan error)
				go func() { over <- pgx.BeginFunc(t.Context(), b.DB, second) }()
				b.Blocked()
				want := error(nil)
				if commits {
					want = requestrows.ErrKeyReused
					pgtest.Must(t, tx.Commit(t.Context()))
				} else {
					pgtest.Must(t, tx.Rollback(t.Context()))
				}
				if err := <-over; !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
				rows, keys := b.Int(`SELECT count(*) FROM reservation_requests`), b.Int(`SELECT count(*) FROM idempotency_keys`)
				if rows+keys != 1 || (rows == 1) != (requestFirst == commits) {
					t.Errorf("%d requests and %d stored answers have the key", rows, keys)
				}
			})
		}
	}
}

// Many callers use few keys, in groups of several processes and in calls that
// finish at once. There is no deadlock, and each key has one effect.
func TestKeysCrosswise(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	keys := make([]string, 12)
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	var callers sync.WaitGroup
	for range 3 {
		in := b.Intake(admission.IntakeConfig{GroupMax: 6, QueueMax: 100})
		for range 8 {
			callers.Go(func() {
				for range 15 {
					crosswise(t, b, in, keys[rand.IntN(len(keys))])
				}
			})
		}
	}
	callers.Wait()
	if n := b.Int(`
		SELECT count(*)
		FROM (SELECT idempotency_key FROM reservation_requests UNION ALL SELECT idempotency_key FROM idempotency_keys) AS used
		GROUP BY idempotency_key
		ORDER BY count(*) DESC
		LIMIT 1`); n != 1 {
		t.Errorf("a key has %d effects", n)
	}
}

func crosswise(t *testing.T, b *testkit.Fixture, in *admission.Intake, key string) {
	if rand.IntN(3) > 0 {
		s := add("a", "shoe", key)
		s.TenantID = b.Tenant
		if _, err := in.Submit(t.Context(), s); err != nil && !errors.Is(err, requestrows.ErrKeyReused) {
			t.Errorf("submit %s: %v", key, err)
		}
		return
	}
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		kept, err := tenants.ClaimKeyTx(t.Context(), tx, b.Tenant, key, [32]byte{})
		if err != nil || kept != nil {
			return err
		}
		if err := requestrows.ReserveKeyTx(t.Context(), tx, b.Tenant, key); err != nil {
			return err
		}
		return keep(t.Context(), tx, b.Tenant, key)
	})
	if err != nil && !errors.Is(err, requestrows.ErrKeyReused) {
		t.Errorf("finish at once with %s: %v", key, err)
	}
}

// Two groups whose keys arrive in opposite orders insert them in the same
// order.
func TestGroupsInOppositeOrder(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	var there, back []requestrows.Submission
	for i := range 40 {
		there = append(there, add("a", "shoe", fmt.Sprintf("key-%02d", i)))
	}
	back = slices.Clone(there)
	slices.Reverse(back)
	crowds := []*crowd{gather(t, b, admission.IntakeConfig{}, there), gather(t, b, admission.IntakeConfig{}, back)}
	var running sync.WaitGroup
	for _, c := range crowds {
		running.Go(func() { c.run() })
	}
	running.Wait()
	for i := range there {
		one, other := crowds[0].answers[i], crowds[1].answers[len(back)-1-i]
		if one.err != nil || other.err != nil || one.request.RequestID != other.request.RequestID {
			t.Errorf("key %d: %v and %v, request %s and %s", i, one.err, other.err, one.request.RequestID, other.request.RequestID)
		}
	}
}
