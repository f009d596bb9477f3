package requestrows_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// A purge reads one stream in pieces, and deletes the old finished requests and
// their keys.
func TestPurgeStream(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 100)
	var rs []requests.Request
	for _, key := range []string{"", "key", "", "", "", ""} {
		rs = append(rs, b.SubmitAs(requestrows.Submission{CartID: "a", VariantID: "shoe", Quantity: 1, IdempotencyKey: key}))
	}
	queued := rs[2]
	b.Exec(`UPDATE reservation_requests SET lane = 'hot', slot = 3 WHERE request_id = $1`, rs[0].RequestID)
	b.Exec(`UPDATE reservation_requests SET variant_id = 'unknown' WHERE request_id = $1`, rs[1].RequestID)
	if _, err := requestrows.MarkProcessing(t.Context(), b.DB, requestrows.RefOf(&queued), time.Hour); err != nil {
		t.Fatal(err)
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Exec(`UPDATE reservation_requests SET status = 'done' WHERE request_id = $1`, rs[0].RequestID)
	b.Exec(`UPDATE reservation_requests SET updated_at = updated_at - interval '8 days' WHERE request_id <> $1`, rs[4].RequestID)

	b.Exec(`DELETE FROM reservations`)
	stream, week := lanes.Stream{Lane: lanes.Normal}, 7*24*time.Hour
	for i, c := range []struct {
		after int64
		piece int
		want  requestrows.Purged
	}{
		{0, 2, requestrows.Purged{Deleted: 1, Last: rs[2].Sequence, More: true}},               // deletes a failed one; the undecided one remains
		{rs[2].Sequence, 2, requestrows.Purged{Deleted: 1, Last: rs[4].Sequence, More: true}},  // deletes a done one; the young one remains
		{rs[3].Sequence, 1, requestrows.Purged{Deleted: 0, Last: rs[4].Sequence, More: false}}, // has no old row
		{rs[4].Sequence, 2, requestrows.Purged{Deleted: 1, Last: rs[5].Sequence, More: false}}, // the last piece
	} {
		got, err := requestrows.PurgeStream(t.Context(), b.DB, stream, week, c.after, c.piece)
		pgtest.Must(t, err)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("piece %d (-want +got):\n%s", i, diff)
		}
	}
	if got, err := requestrows.PurgeStream(t.Context(), b.DB, stream, week, rs[5].Sequence, 2); err != nil || got != (requestrows.Purged{Last: rs[5].Sequence}) {
		t.Errorf("past the end: %+v, %v", got, err)
	}
	if got, err := requestrows.PurgeStream(t.Context(), b.DB, lanes.Stream{Lane: lanes.Hot, Slot: 3}, week, 0, 2); err != nil || got.Deleted != 1 {
		t.Errorf("the other stream: %+v, %v", got, err)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 2 {
		t.Errorf("%d rows left, want the undecided and the young", n)
	}
	again := b.SubmitAs(requestrows.Submission{CartID: "a", VariantID: "shoe", Quantity: 1, IdempotencyKey: "key", Fingerprint: [32]byte{1}})
	if again.RequestID == rs[1].RequestID || again.Status != requests.Queued {
		t.Errorf("%+v: the purged key is still used", again)
	}
}

// A request and its key are kept while its hold is live, however old they are.
// The rows behind it are purged.
func TestPurgeKeepsWhatIsHeld(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 100)
	s := requestrows.Submission{CartID: "a", VariantID: "shoe", Quantity: 1, IdempotencyKey: "key", Fingerprint: [32]byte{1}}
	held := b.SubmitAs(s)
	for range 3 {
		b.SubmitAs(requestrows.Submission{CartID: "b", VariantID: "unknown", Quantity: 1})
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Exec(`UPDATE reservation_requests SET updated_at = updated_at - interval '8 days'`)
	purge := func() (deleted int64) {
		var p requestrows.Purged
		for p.More = true; p.More; deleted += p.Deleted {
			var err error
			p, err = requestrows.PurgeStream(t.Context(), b.DB, lanes.Stream{Lane: lanes.Normal}, 7*24*time.Hour, p.Last, 1)
			pgtest.Must(t, err)
		}
		return deleted
	}
	if n := purge(); n != 3 {
		t.Errorf("%d are deleted, want the 3 that hold nothing", n)
	}
	if again := b.SubmitAs(s); again.RequestID != held.RequestID {
		t.Errorf("%+v: the key of a live hold was forgotten", again)
	}
	b.Exec(`UPDATE reservations SET status = 'released', release_reason = 'operator', ended_at = clock_timestamp()`)
	if n := purge(); n != 1 {
		t.Errorf("%d are deleted once the hold has ended, want 1", n)
	}
}
