package verify_test

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/sweeper"
	"github.com/holdfast/holdfast/verify"
)

// A run that is limited to changes reads the rows that the record has changed
// since, and no others.
func TestRunOfChanges(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.writeHistory()
	var before time.Time
	s.Must(s.DB.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&before))
	last := s.Int(`SELECT max(audit_id) FROM audit_log`)
	for name, config := range map[string]verify.Config{"nothing since an id": {AfterID: last}, "nothing since a time": {Since: before}, "all": {AfterID: 1}} {
		report := s.try(t, config)
		if found := broken(report); len(found) > 0 || (report.AfterID != last && name != "all") {
			t.Errorf("%s: after %d, want %d, and found %v", name, report.AfterID, last, found)
		}
	}
	tenant := s.tenants[0]
	hold := s.ask(tenant, requests.Add, "cart-since", "hat", 1)
	s.drain()
	s.set(tenant, "hat", inventory.StockPatch{MaxPerCart: new(int32(9))})
	s.ask(tenant, requests.Add, "cart-queued", "hat", 1)
	damageOld := `UPDATE reservations SET quantity = quantity + 1 WHERE ` + oneHold(fmt.Sprintf(`%s AND holder_id NOT IN ('cart-since', 'cart-1') AND tenant_id = '%s'`, heldHat, tenant))
	damageNew := fmt.Sprintf(`UPDATE reservations SET quantity = quantity + 1 WHERE reservation_id = '%s'`, hold)
	for _, c := range []struct {
		name string
		do   string
		want []string
	}{
		{"an old hold, of a variant that changed", damageOld, []string{"stock_reserved"}},
		{"a new hold", damageNew, []string{"hold_matches_request", "record_agrees", "stock_reserved"}},
		{"a stock that changed", `UPDATE inventory_stocks SET stock = stock + 1 WHERE variant_id = 'hat'`, []string{"stock_accounted"}},
		{"a stock that did not change", `UPDATE inventory_stocks SET stock = stock + 1 WHERE variant_id = 'ring'`, nil},
		{"a claim that never ends", `UPDATE reservation_requests SET status = 'processing' WHERE status = 'queued'`, []string{"claim_ends"}},
	} {
		for limit, config := range map[string]verify.Config{"id": {AfterID: last}, "time": {Since: before}} {
			report := s.try(t, config, c.do)
			if diff := cmp.Diff(c.want, broken(report)); diff != "" {
				t.Errorf("%s, since the %s (-want +got):\n%s", c.name, limit, diff)
			}
		}
	}
	if _, err := verify.Run(t.Context(), s.DB, verify.Config{AfterID: 1, Since: before}); err == nil {
		t.Error("a time and an id were accepted")
	}
}

// Requests that a purge has removed under a shorter retention than the present
// one are no violation, nor are the checkouts.
func TestRunAfterAShorterRetention(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.writeHistory()
	for _, sql := range []string{
		`UPDATE reservation_requests SET created_at = created_at - interval '3 hours', updated_at = updated_at - interval '3 hours' WHERE status <> 'queued'`,
		`UPDATE reservations SET first_held_at = first_held_at - interval '3 hours', held_at = held_at - interval '3 hours',
			ended_at = ended_at - interval '3 hours', expires_at = expires_at - interval '3 hours' WHERE ended_at IS NOT NULL`,
		`UPDATE reservations SET first_held_at = first_held_at - interval '3 hours', held_at = held_at - interval '3 hours' WHERE ended_at IS NULL`,
		`UPDATE checkouts SET created_at = created_at - interval '3 hours', ended_at = ended_at - interval '3 hours'`,
		`UPDATE audit_log SET created_at = created_at - interval '3 hours'`,
		`UPDATE audit_log AS a SET expires_at = moved.expires_at,
				before = CASE WHEN a.before ? 'expires_at' THEN a.before || jsonb_build_object('expires_at', moved.expires_at) ELSE a.before END
			FROM reservations AS moved
			WHERE moved.ended_at IS NOT NULL AND a.target_id = moved.reservation_id AND a.action LIKE 'reservation.%'`,
	} {
		_, err := s.DB.Exec(t.Context(), sql)
		s.Must(err)
	}
	purge, err := sweeper.New(s.DB, slog.New(slog.DiscardHandler), sweeper.Config{RequestRetention: time.Hour})
	s.Must(err)
	streams, err := lanes.Streams(t.Context(), s.DB)
	s.Must(err)
	purged, err := purge.PurgeOnce(t.Context(), streams)
	s.Must(err)
	if purged.Requests < 100 || purged.Checkouts == 0 {
		t.Fatalf("the purge deleted %+v", purged)
	}
	report, err := verify.Run(t.Context(), s.DB, verify.Config{})
	s.Must(err)
	for _, c := range report.Checks {
		if c.Broken > 0 {
			t.Errorf("%s: %s", c.Name, c.Sample[0])
		}
	}
	var purgedBefore time.Time
	s.Must(s.DB.QueryRow(t.Context(), `SELECT purged_before FROM purge_mark`).Scan(&purgedBefore))
	if !report.Since.Equal(purgedBefore) {
		t.Errorf("rows that ended since %s must have their counterparts, want since %s: what the purge kept", report.Since, purgedBefore)
	}
}

// Each target is looked up by its key, however few the planner expects:
// otherwise each piece would read whole tables.
func TestTargetsAreLookedUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	fill(t, db, 25_000)
	nothing := [][16]byte{}
	rows, err := db.Query(t.Context(), `EXPLAIN `+verify.TargetStatement(), pgx.NamedArgs{
		"tenants": nothing, "ids": nothing, "since": time.Now(), "now": time.Now(), "latest": time.Now(), "margin": time.Minute,
		"lifetime_max": time.Hour, "queue_age_max": time.Hour,
	})
	pgtest.Must(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	pgtest.Must(t, err)
	whole := regexp.MustCompile(`Seq Scan on (reservations|reservation_requests|audit_log)|Index.*Scan using \w+ on (reservations|reservation_requests|audit_log)$`)
	if i := slices.IndexFunc(plan, whole.MatchString); i >= 0 {
		t.Errorf("a whole table is read:\n%s", plan[i])
	}
}
