package reservations_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// The record of every transition is parsed into an event.
func TestParseEvent(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	hold := func() *reservations.Handle {
		handle, err := h.rooms.Hold(ctx, h.by, "twin", span{9, 11}, reservations.HoldOpts{Quantity: 1, TTL: time.Hour, HolderID: "cart 7"})
		h.Must(err)
		return handle
	}
	released := hold()
	extended, err := h.rooms.Extend(ctx, h.by, released, time.Minute)
	h.Must(err)
	h.Must(failure(h.rooms.Release(ctx, h.by, extended, "no_show")))
	committed := hold()
	h.Must(failure(h.rooms.Commit(ctx, h.by, committed)))
	expired := hold()
	h.lapse(expired)
	_, err = h.rooms.SweepOnce(ctx, 0)
	h.Must(err)

	base := func(name string, status reservations.Status, handle *reservations.Handle) reservations.Event {
		made, _ := handle.Reservation()
		return reservations.Event{
			Name: name, Origin: h.by.Origin, TenantID: h.tenant, ReservationID: handle.ID(), Status: status, ResourceKind: "house.room",
			ResourceKey: `"twin"`, ResourceWindow: `{"From":9,"To":11}`, HolderID: "cart 7", Quantity: 1, ExpiresAt: made.ExpiresAt.UTC(),
		}
	}
	gone := base(reservationrows.EventReleased, reservations.Released, extended)
	gone.ReleaseReason = "no_show"
	due := base(reservationrows.EventExpired, reservations.Expired, expired)
	due.ReleaseReason, due.Origin, due.ExpiresAt = reservationrows.TTL, audit.Origin{Actor: audit.Job("expiry"), Reason: "ttl"}, h.get(expired.ID()).ExpiresAt.UTC()
	for _, c := range []struct {
		handle *reservations.Handle
		want   []reservations.Event
	}{
		{released, []reservations.Event{
			base(reservationrows.EventHeld, reservations.Held, released), base(reservationrows.EventExtended, reservations.Held, extended), gone,
		}},
		{committed, []reservations.Event{
			base(reservationrows.EventHeld, reservations.Held, committed), base(reservationrows.EventCommitted, reservations.Committed, committed),
		}},
		{expired, []reservations.Event{base(reservationrows.EventHeld, reservations.Held, expired), due}},
	} {
		history, err := audit.History(ctx, h.DB, h.tenant, c.handle.ID())
		h.Must(err)
		var got []reservations.Event
		for _, record := range history {
			event, ok, err := reservations.ParseEvent(record)
			h.Must(err)
			if !ok || event.AuditID != record.AuditID || !event.CreatedAt.Equal(record.CreatedAt) || event.AuditID == 0 {
				t.Errorf("%+v, of %+v", event, record)
			}
			event.AuditID, event.CreatedAt = 0, time.Time{}
			got = append(got, event)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// The comments of the types that are declared in another package list all their
// fields with their types, so that go doc shows them.
func TestFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("reservation.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]reflect.Type{
		"Reservation": reflect.TypeFor[reservations.Reservation](), "ConflictError": reflect.TypeFor[reservations.ConflictError](),
	} {
		before, _, _ := strings.Cut(string(source), "\ntype "+name+" = ")
		comment := before[strings.LastIndex(before, "\n\n"):]
		documented := make(map[string]string)
		for _, line := range regexp.MustCompile(`(?m)^//\t([\w, ]+?) +([\w.*\[\]]+)(?: +//.*)?$`).FindAllStringSubmatch(comment, -1) {
			for field := range strings.SplitSeq(line[1], ", ") {
				documented[field] = strings.TrimPrefix(line[2], "reservations.")
			}
		}
		want := make(map[string]string)
		for field := range of.Fields() {
			want[field.Name] = strings.TrimPrefix(field.Type.String(), "reservationrows.")
		}
		if diff := cmp.Diff(want, documented); diff != "" {
			t.Errorf("%s (-want +documented):\n%s", name, diff)
		}
	}
}

func TestParseEventOfOther(t *testing.T) {
	t.Parallel()
	record := audit.Record{Entry: audit.Entry{TenantID: uuid.New(), Action: "stock.set", After: json.RawMessage(`{}`)}}
	if event, ok, err := reservations.ParseEvent(record); ok || err != nil {
		t.Errorf("%+v, %t, %v, want no event", event, ok, err)
	}
	record.Action, record.After = reservationrows.EventHeld, json.RawMessage(`{"quantity":"many"}`)
	if _, ok, err := reservations.ParseEvent(record); err == nil || ok {
		t.Errorf("%v, want an error of its state", err)
	}
}
