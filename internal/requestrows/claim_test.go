package requestrows_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// A request is finished once, and only by the worker that has the claim on it.
func TestFinishOnce(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	finish := func(r requests.Request, reason requests.Reason) error {
		return pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
			return requestrows.FinishTx(t.Context(), tx, []requests.Request{r}, []requests.Reason{reason}, time.Now(), shopper)
		})
	}
	done := b.Submit("a", "shoe", 1)
	pgtest.Must(t, finish(done, ""))
	for _, reason := range []requests.Reason{"", requests.OutOfStock} {
		if err := finish(done, reason); err == nil {
			t.Errorf("a done request was finished again as %q", reason)
		}
	}
	b.Want(done, requests.Done, "")

	claimed := b.Submit("b", "shoe", 1)
	first, err := requestrows.MarkProcessing(t.Context(), b.DB, requestrows.RefOf(&claimed), time.Nanosecond)
	if err != nil || len(first) != 1 || first[0].Attempts != 1 || first[0].ClaimEpoch != 1 || first[0].Status != requests.Processing {
		t.Fatalf("%+v, %v; want the first attempt", first, err)
	}
	if again, err := requestrows.MarkProcessing(t.Context(), b.DB, requestrows.RefOf(&claimed), time.Minute); err != nil || len(again) != 0 {
		t.Errorf("%+v, %v; it is claimed already", again, err)
	}
	second, err := requestrows.Reclaim(t.Context(), b.DB, lanes.Normal, 10, time.Minute)
	if err != nil || len(second) != 1 || second[0].Attempts != 2 || second[0].ClaimEpoch != 2 {
		t.Fatalf("%+v, %v; want the second attempt", second, err)
	}
	if third, err := requestrows.Reclaim(t.Context(), b.DB, lanes.Normal, 10, time.Minute); err != nil || len(third) != 0 {
		t.Errorf("%+v, %v; the claim has not lapsed", third, err)
	}
	for _, shut := range []requests.Request{claimed, first[0]} {
		if err := finish(shut, requests.OutOfStock); err == nil {
			t.Errorf("finished under epoch %d, which has ended", shut.ClaimEpoch)
		}
	}
	pgtest.Must(t, requestrows.Postpone(t.Context(), b.DB, first[0], time.Nanosecond)) // a late Postpone changes nothing
	if third, err := requestrows.Reclaim(t.Context(), b.DB, lanes.Normal, 10, time.Minute); err != nil || len(third) != 0 {
		t.Errorf("%+v, %v; an earlier claimer ended a later claim", third, err)
	}
	pgtest.Must(t, finish(second[0], ""))
	b.Want(claimed, requests.Done, "")
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE claim_expires_at IS NOT NULL`); n != 0 {
		t.Error("a finished request still has a claim")
	}
	if none, err := requestrows.MarkProcessing(t.Context(), b.DB, requestrows.RefOf(&done), time.Minute); err != nil || len(none) != 0 {
		t.Errorf("%+v, %v; a finished request was claimed", none, err)
	}
}

// QueueFinish finishes all requests or none: if one is finished already, the
// batch fails.
func TestFinishAllOrNone(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	one, other := b.Submit("a", "shoe", 1), b.Submit("b", "shoe", 1)
	_, err := carts.Remove(t.Context(), b.DB, b.Tenant, "a", "", reservations.Abandoned, shopper)
	pgtest.Must(t, err)
	err = pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		return requestrows.FinishTx(t.Context(), tx, []requests.Request{one, other}, []requests.Reason{"", requests.OutOfStock}, time.Now(), shopper)
	})
	if err == nil {
		t.Error("a cancelled request was finished again")
	}
	b.Want(one, requests.Failed, requests.Cancelled)
	b.Want(other, requests.Queued, "")
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE target_id = $1`, other.RequestID); n != 0 {
		t.Errorf("%d audit rows of a batch that failed", n)
	}
}

// Reclaim takes the claims that lapsed first, up to the limit, and skips
// requests that another transaction has locked.
func TestReclaim(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	var rs []requests.Request
	for i := range 4 {
		r := b.Submit("a", "shoe", 1)
		if _, err := requestrows.MarkProcessing(t.Context(), b.DB, requestrows.RefOf(&r), time.Minute); err != nil {
			t.Fatal(err)
		}
		b.Exec(`UPDATE reservation_requests SET claim_expires_at = clock_timestamp() - $2 * interval '1 minute' WHERE request_id = $1`, r.RequestID, i)
		rs = append(rs, r)
	}
	busy := b.Lock(`SELECT FROM reservation_requests WHERE request_id = $1 FOR UPDATE`, rs[2].RequestID)
	for _, want := range []requests.Request{rs[3], rs[1], rs[0]} {
		got, err := requestrows.Reclaim(t.Context(), b.DB, lanes.Normal, 1, time.Hour)
		if err != nil || len(got) != 1 || got[0].RequestID != want.RequestID {
			t.Errorf("%+v, %v; want %s", got, err, want.RequestID)
		}
	}
	if got, err := requestrows.Reclaim(t.Context(), b.DB, lanes.Normal, 10, time.Hour); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v; the last one is locked", got, err)
	}
	pgtest.Must(t, busy.Rollback(t.Context()))
	if got, err := requestrows.Reclaim(t.Context(), b.DB, lanes.Normal, 10, time.Hour); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v; the last one is free", got, err)
	}
}

// A request whose attempts have reached the highest number is claimed too, and
// so are the requests behind it.
func TestReclaimAtMostAttempts(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	worn, next := b.Submit("a", "shoe", 1), b.Submit("b", "shoe", 1)
	for _, r := range []requests.Request{worn, next} {
		if _, err := requestrows.MarkProcessing(t.Context(), b.DB, requestrows.RefOf(&r), time.Nanosecond); err != nil {
			t.Fatal(err)
		}
	}
	b.Exec(`UPDATE reservation_requests SET attempts = 32767 WHERE request_id = $1`, worn.RequestID)
	got, err := requestrows.Reclaim(t.Context(), b.DB, lanes.Normal, 10, time.Minute)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v; want both requests", got, err)
	}
	if v := b.Get(worn); v.Attempts != 32767 || v.ClaimEpoch != 2 {
		t.Errorf("%d attempts, epoch %d, want 32767 and 2", v.Attempts, v.ClaimEpoch)
	}
	if v := b.Get(next); v.Attempts != 2 {
		t.Errorf("%d attempts, want 2", v.Attempts)
	}
}
