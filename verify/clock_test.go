package verify_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/verify"
)

// setBack moves the times recorded from the given audit id on ten minutes back,
// as if the database's clock had been set back just before it. It does not
// change deadlines, because the record repeats them. It deletes the expired
// holds, which would have expired ten minutes later.
func setBack(audit int64) []string {
	since := fmt.Sprintf(`(SELECT created_at FROM audit_log WHERE audit_id = %d)`, audit)
	recorded := func(id, actions string) string {
		return fmt.Sprintf(`%s IN (SELECT target_id FROM audit_log WHERE action IN (%s) AND audit_id >= %d)`, id, actions, audit)
	}
	expired := `IN (SELECT reservation_id FROM reservations WHERE status = 'expired')`
	return []string{
		`DELETE FROM audit_log WHERE target_id ` + expired,
		`DELETE FROM reservation_requests WHERE request_id ` + expired,
		`DELETE FROM reservations WHERE status = 'expired'`,
		`UPDATE reservations SET ended_at = ended_at - interval '10 minutes'
			WHERE ` + recorded("reservation_id", `'reservation.committed', 'reservation.released'`),
		`UPDATE reservations SET first_held_at = first_held_at - interval '10 minutes', held_at = held_at - interval '10 minutes'
			WHERE ` + recorded("reservation_id", `'reservation.held'`),
		`UPDATE reservation_requests SET updated_at = updated_at - interval '10 minutes'
			WHERE ` + recorded("request_id", `'reservation.held', 'request.failed'`),
		`UPDATE reservation_requests SET created_at = created_at - interval '10 minutes' WHERE created_at > ` + since,
		`UPDATE checkouts SET created_at = created_at - interval '10 minutes' WHERE ` + recorded("checkout_id", `'checkout.begun'`),
		`UPDATE checkouts SET ended_at = ended_at - interval '10 minutes'
			WHERE ` + recorded("checkout_id", `'checkout.committed', 'checkout.compensated', 'checkout.failed'`),
		fmt.Sprintf(`UPDATE audit_log SET created_at = created_at - interval '10 minutes' WHERE audit_id >= %d`, audit),
	}
}

// A clock that was set back breaks no check. Notes list the rows whose times it
// affected.
func TestRunAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.writeHistory()
	config := verify.Config{LifetimeMax: 2 * time.Hour}
	if untouched := s.try(t, config); len(untouched.Notes) > 0 {
		t.Errorf("notes of a clock that was never set back: %+v", untouched.Notes)
	}
	checkedOut := s.Int(`SELECT min(audit_id) FROM audit_log WHERE action = 'reservation.committed'`)
	for name, c := range map[string]struct {
		do    []string
		notes map[string]int64
	}{
		"between holds and checkouts": {setBack(checkedOut), map[string]int64{
			"clock_set_back": 1,
			"times_backwards": s.Int(`SELECT count(DISTINCT ended.target_id) FROM audit_log AS ended JOIN audit_log AS held USING (target_id)
				WHERE ended.action IN ('reservation.committed', 'reservation.released') AND held.action = 'reservation.held'
				  AND ended.audit_id >= $1 AND held.audit_id < $1`, checkedOut),
		}},
		"between two decisions": {[]string{firstRingCameEarly, `UPDATE reservation_requests SET updated_at = updated_at + interval '30 seconds' WHERE ` + firstRing}, map[string]int64{}},
		"after a hold": {[]string{
			`UPDATE reservations SET first_held_at = first_held_at + interval '10 minutes', held_at = held_at + interval '10 minutes'
				WHERE ` + oneHold(`status = 'held' AND holder_id = 'cart-flip'`),
			`UPDATE reservation_requests SET updated_at = updated_at + interval '10 minutes'
				WHERE request_id IN (SELECT reservation_id FROM reservations WHERE held_at > clock_timestamp())`,
			`UPDATE audit_log SET created_at = created_at + interval '10 minutes'
				WHERE action = 'reservation.held' AND target_id IN (SELECT reservation_id FROM reservations WHERE held_at > clock_timestamp())`,
		}, map[string]int64{"clock_set_back": 1, "times_backwards": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			report := s.try(t, config, c.do...)
			for _, check := range report.Checks {
				if check.Broken > 0 {
					t.Errorf("%s is broken: %s", check.Name, check.Sample)
				}
			}
			notes := map[string]int64{}
			for _, n := range report.Notes {
				notes[n.Name] = n.Rows
				if int64(len(n.Sample)) != min(n.Rows, verify.SampleMax) || n.Meaning == "" {
					t.Errorf("%s: %d rows, %d of them shown, %q", n.Name, n.Rows, len(n.Sample), n.Meaning)
				}
			}
			if diff := cmp.Diff(c.notes, notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			if !report.OK {
				t.Error("the report is not ok")
			}
		})
	}
}
