package lanes_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
)

var operator = audit.Origin{Actor: audit.User("hf_ops000"), CorrelationID: "c-7"}

// A change of a lane's controls is one audit row with the controls before and
// after. A patch that changes nothing writes nothing, and a rejected patch
// changes nothing.
func TestControlIsRecorded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	control := func(patch lanes.Patch) {
		t.Helper()
		if err := lanes.Control(t.Context(), db, lanes.Normal, patch, operator); err != nil {
			t.Fatal(err)
		}
	}
	version := func() (xmin string) {
		t.Helper()
		if err := db.QueryRow(t.Context(), `SELECT xmin::text FROM lane_slots WHERE lane = 'normal' AND slot = -1`).Scan(&xmin); err != nil {
			t.Fatal(err)
		}
		return xmin
	}
	for range 2 { // the second time it changes nothing
		control(lanes.Patch{Paused: new(true)})
	}
	control(lanes.Patch{RateCap: new(int32(50))})
	before := version()
	for _, same := range []lanes.Patch{{}, {Paused: new(true)}, {RateCap: new(int32(50))}, {Paused: new(true), RateCap: new(int32(50))}} {
		control(same)
	}
	if after := version(); after != before {
		t.Error("a patch that changes nothing wrote the row")
	}
	control(lanes.Patch{Paused: new(false), RateCap: new(int32(0))})
	control(lanes.Patch{RateCap: new(int32(0))})
	for lane, want := range map[lanes.Lane]error{lanes.Normal: lanes.ErrRateCap, "cold": lanes.ErrUnknown} {
		patch := lanes.Patch{Paused: new(true)}
		if want == lanes.ErrRateCap {
			patch.RateCap = new(int32(-1))
		}
		if err := lanes.Control(t.Context(), db, lane, patch, operator); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", lane, err, want)
		}
	}

	records, err := audit.History(t.Context(), db, uuid.Nil, lanes.Target(lanes.Normal))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		if r.Action != "lane.controlled" || r.Origin != operator {
			t.Errorf("%s by %+v", r.Action, r.Origin)
		}
		got = append(got, compact(t, r.Before)+" → "+compact(t, r.After))
	}
	want := []string{
		`{"lane":"normal","paused":false,"rate_cap":null} → {"lane":"normal","paused":true,"rate_cap":null}`,
		`{"lane":"normal","paused":true,"rate_cap":null} → {"lane":"normal","paused":true,"rate_cap":50}`,
		`{"lane":"normal","paused":true,"rate_cap":50} → {"lane":"normal","paused":false,"rate_cap":null}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func compact(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
