package auditrows

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
)

var full = Reservation{
	ResourceKind: "inventory.variant", ResourceKey: `"hall" <1>`, HolderID: "cart", ResourceWindow: `{"start":"2026-01-02T03:04:05Z"}`,
	Quantity: 2, ExpiresAt: time.Date(2026, 1, 2, 3, 4, 5, 600_000, time.FixedZone("", 3600)), UnitIDs: `["A1", "A2"]`,
	CheckoutID: uuid.MustParse("00000000-0000-0000-0000-000000000007"),
}

// Both states of a transition have the members of the reservation, as far as it
// has them.
func TestStates(t *testing.T) {
	t.Parallel()
	const (
		held = `{"status":"held","quantity":1,"holder_id":"cart","expires_at":"2026-01-02T02:04:05.0006Z","resource_key":"shirt","resource_kind":"inventory.variant"}`
		all  = `,"quantity":2,"unit_ids":["A1", "A2"],"holder_id":"cart","expires_at":"2026-01-02T02:04:05.0006Z","checkout_id":"00000000-0000-0000-0000-000000000007",` +
			`"resource_key":"\"hall\" \u003c1\u003e","resource_kind":"inventory.variant",`
		window = `"resource_window":{"start":"2026-01-02T03:04:05Z"}}`
	)
	plain := Reservation{ResourceKind: "inventory.variant", ResourceKey: "shirt", HolderID: "cart", Quantity: 1, ExpiresAt: full.ExpiresAt}
	released, extended := full, plain
	released.ReleaseReason = "operator"
	extended.CheckoutID, extended.ExpiresAt = full.CheckoutID, full.ExpiresAt.Add(time.Hour)
	extended.Before = json.RawMessage(`{"expires_at":"2026-01-02T02:04:05.0006Z","checkout_id":null}`)
	changed := plain
	changed.Before = json.RawMessage(`{"quantity":3,"holder_id":"guest","unit_ids":["B1"],"checkout_id":"00000000-0000-0000-0000-000000000007"}`)
	for _, c := range []struct {
		action        string
		r             Reservation
		before, after string
	}{
		{"reservation.held", plain, "", held},
		{"reservation.released", released, `{"status":"held"` + all + window, `{"status":"released"` + all + `"release_reason":"operator",` + window},
		{"reservation.extended", extended, held, `{"status":"held","quantity":1,"holder_id":"cart","expires_at":"2026-01-02T03:04:05.0006Z",` +
			`"checkout_id":"00000000-0000-0000-0000-000000000007","resource_key":"shirt","resource_kind":"inventory.variant"}`},
		{"reservation.committed", changed, `{"status":"held","quantity":3,"unit_ids":["B1"],"holder_id":"guest","expires_at":"2026-01-02T02:04:05.0006Z",` +
			`"checkout_id":"00000000-0000-0000-0000-000000000007","resource_key":"shirt","resource_kind":"inventory.variant"}`, `{"status":"committed"` + held[len(`{"status":"held"`):]},
	} {
		before, after, err := c.r.States(c.action)
		if err != nil || string(before) != c.before || string(after) != c.after {
			t.Errorf("%s: %v\n%s\n%s\nwant\n%s\n%s", c.action, err, before, after, c.before, c.after)
		}
	}
}

// Members that cannot be read are an error, and are returned as they are.
func TestStatesOfDamagedMembers(t *testing.T) {
	t.Parallel()
	for _, before := range []string{`[]`, `{"quantity":"many"}`, `{"expires_at":"soon"}`} {
		r := full
		r.Before = json.RawMessage(before)
		if was, is, err := r.States("reservation.extended"); err == nil || string(was) != before || len(is) == 0 {
			t.Errorf("%s: %s, %s, %v", before, was, is, err)
		}
	}
}
