package checkouts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/verify"
)

var (
	shopper = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-7"}
	bank    = audit.Origin{Actor: audit.User("hf_bank00"), CorrelationID: "c-8"}
)

// fixture is the fixture: a database, a tenant, and a log.
type fixture struct {
	pgtest.Fixture
	tenant uuid.UUID
	config checkouts.Config
	log    *logged
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return shopOn(t, pgtest.New(t))
}

func shopOn(t testing.TB, db *pgxpool.Pool) *fixture {
	s := &fixture{Fixture: pgtest.Fixture{TB: t, DB: db}, tenant: uuid.New(), log: &logged{}}
	s.config = checkouts.Config{Log: slog.New(slog.NewTextHandler(s.log, nil)), Every: 5 * time.Millisecond}
	return s
}

// logged is the log of a fixture.
type logged struct{ pgtest.Log }

// errors counts the lines of level ERROR with the text.
func (l *logged) errors(text string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, "level=ERROR") && strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// stock makes a variant.
func (s *fixture) stock(variant string, stock int64) {
	s.TB.Helper()
	s.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, $2, $3)`, s.tenant, variant, stock)
}

// seats makes a block of n units: s1, s2 and so on.
func (s *fixture) seats(block string, n int) {
	s.TB.Helper()
	ids := make([]inventory.NewUnit, n)
	for i := range ids {
		ids[i].UnitID = fmt.Sprintf("s%d", i+1)
	}
	s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error {
		_, err := inventory.AddUnitsTx(s.TB.Context(), tx, s.tenant, block, ids, shopper)
		return err
	}))
}

// tryHold makes a hold of the units, or of any if none are named, and returns
// whether it was granted.
func (s *fixture) tryHold(ctx context.Context, cart, variant string, quantity int64, unitIDs ...string) (id uuid.UUID, outcome inventory.Outcome, err error) {
	request := inventory.HoldRequest{
		TenantID: s.tenant, RequestID: uuid.Must(uuid.NewV7()), CartID: cart, VariantID: variant, Quantity: quantity,
		UnitIDs: unitIDs, Origin: shopper,
	}
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		holding, err := inventory.HoldTx(ctx, tx, []inventory.HoldRequest{request}, inventory.Terms{TTL: 15 * time.Minute, LifetimeMax: 2 * time.Hour})
		if err != nil {
			return err
		}
		outcome = holding.Outcomes[0]
		b := &pgx.Batch{}
		holding.Queue(b)
		return tx.SendBatch(ctx, b).Close()
	})
	return request.RequestID, outcome, err
}

func (s *fixture) hold(cart, variant string, quantity int64, unitIDs ...string) uuid.UUID {
	s.TB.Helper()
	id, outcome, err := s.tryHold(s.TB.Context(), cart, variant, quantity, unitIDs...)
	s.Must(err)
	if outcome != inventory.Granted {
		s.TB.Fatalf("%d × %s for cart %s: %s", quantity, variant, cart, outcome)
	}
	return id
}

func (s *fixture) start(cart string) checkouts.Start {
	return checkouts.Start{TenantID: s.tenant, CartID: cart, PaymentReference: "pay-" + cart, Origin: shopper}
}

func (s *fixture) begin(cart string) checkouts.Checkout {
	s.TB.Helper()
	c, err := checkouts.Begin(s.TB.Context(), s.DB, s.start(cart), s.config)
	s.Must(err)
	return c
}

// beginCalled begins a checkout whose payment the Validator finds out about.
func (s *fixture) beginCalled(cart string) checkouts.Checkout {
	s.TB.Helper()
	start := s.start(cart)
	start.CallbackURL = "https://pay.example/" + cart
	c, err := checkouts.Begin(s.TB.Context(), s.DB, start, s.config)
	s.Must(err)
	return c
}

func (s *fixture) answer(id uuid.UUID, result checkouts.Result) (checkouts.Checkout, error) {
	return checkouts.Answer(s.TB.Context(), s.DB, s.payment(id, result), s.config)
}

func (s *fixture) payment(id uuid.UUID, result checkouts.Result) checkouts.Payment {
	return checkouts.Payment{TenantID: s.tenant, CheckoutID: id, Result: result, Origin: bank}
}

func (s *fixture) get(id uuid.UUID) checkouts.Checkout {
	s.TB.Helper()
	c, err := checkouts.Get(s.TB.Context(), s.DB, s.tenant, id)
	s.Must(err)
	return c
}

// recovery is a Recovery with another pool, as another process has it.
func (s *fixture) recovery(v checkouts.Validator) *checkouts.Recovery {
	s.TB.Helper()
	config := s.config
	config.Validator = v
	r, err := checkouts.NewRecovery(pgtest.Open(s.TB, s.DB.Config().ConnString()), config)
	s.Must(err)
	return r
}

// recover makes one pass, after all unfinished checkouts have become due.
func (s *fixture) recover(v checkouts.Validator) checkouts.Report {
	s.TB.Helper()
	s.due()
	report, err := s.recovery(v).RunOnce(s.TB.Context())
	s.Must(err)
	return report
}

// due lets the backoff of all checkouts be over.
func (s *fixture) due() {
	s.TB.Helper()
	s.Exec(`UPDATE checkouts SET next_attempt_at = clock_timestamp() WHERE ended_at IS NULL`)
}

// late makes a checkout's deadline pass. Its holds still have their margin.
func (s *fixture) late(id uuid.UUID) {
	s.TB.Helper()
	s.Exec(`UPDATE checkouts SET deadline = clock_timestamp() WHERE checkout_id = $1`, id)
}

// lapse makes the holds of a checkout due.
func (s *fixture) lapse(id uuid.UUID) {
	s.TB.Helper()
	s.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE checkout_id = $1 AND status = 'held'`, id)
}

func (s *fixture) sweep() {
	s.TB.Helper()
	_, err := inventory.ExpireDue(s.TB.Context(), s.DB, 1000)
	s.Must(err)
}

// validator is a Validator that is a function.
type validator func(ctx context.Context, c checkouts.Checkout) (checkouts.Result, error)

func (v validator) Validate(ctx context.Context, c checkouts.Checkout) (checkouts.Result, error) {
	return v(ctx, c)
}

// always returns the same result.
func always(result checkouts.Result) validator {
	return func(context.Context, checkouts.Checkout) (checkouts.Result, error) { return result, nil }
}

// conflict returns the conflict in err, and fails the test without one.
func (s *fixture) conflict(err error) *checkouts.ConflictError {
	s.TB.Helper()
	conflict, ok := errors.AsType[*checkouts.ConflictError](err)
	if !ok {
		s.TB.Fatalf("%v, want a *ConflictError", err)
	}
	return conflict
}

// wantCheckout fails the test unless the checkout is in the state.
func (s *fixture) wantCheckout(id uuid.UUID, status checkouts.Status, reason checkouts.Reason, alert checkouts.Alert) {
	s.TB.Helper()
	if c := s.get(id); c.Status != status || c.Reason != reason || c.Alert != alert {
		s.TB.Errorf("checkout: %s %q, alert %q; want %s %q, alert %q", c.Status, c.Reason, c.Alert, status, reason, alert)
	}
}

// wantHolds fails the test unless all holds of the checkout have the status.
func (s *fixture) wantHolds(id uuid.UUID, status reservations.Status) {
	s.TB.Helper()
	holds, err := checkouts.Holds(s.TB.Context(), s.DB, s.tenant, id)
	s.Must(err)
	for _, h := range holds {
		if h.Status != status {
			s.TB.Errorf("hold of %d × %s is %s, want %s", h.Quantity, h.ResourceKey, h.Status, status)
		}
	}
}

// wantStock fails the test unless the variant has these counters.
func (s *fixture) wantStock(variant string, stock, reserved int64) {
	s.TB.Helper()
	got, err := inventory.Get(s.TB.Context(), s.DB, s.tenant, variant)
	s.Must(err)
	if got.Stock != stock || got.Reserved != reserved {
		s.TB.Errorf("%s: stock %d, reserved %d, want %d and %d", variant, got.Stock, got.Reserved, stock, reserved)
	}
}

// faults are statements that count what must not exist in any committed state.
var faults = map[string]string{
	"counters that disagree with their holds": `
		SELECT count(*)
		FROM inventory_stocks s
		WHERE s.reserved <> (SELECT coalesce(sum(r.quantity), 0) FROM reservations r
		                     WHERE r.tenant_id = s.tenant_id AND r.resource_key = s.variant_id AND r.status = 'held')
		   OR s.reserved > s.stock`,
	"blocks that disagree with their units": `
		SELECT count(*)
		FROM inventory_stocks s
		WHERE s.named_units
		  AND (s.stock, s.reserved) <> (SELECT count(*) FILTER (WHERE p.status <> 'inactive'), count(*) FILTER (WHERE p.status = 'pending_inactive')
		                                FROM postings p WHERE p.tenant_id = s.tenant_id AND p.block = s.variant_id)`,
	"units whose owner is not a hold of the same kind": `
		SELECT count(*)
		FROM postings p
		LEFT JOIN reservations r ON r.tenant_id = p.tenant_id AND r.reservation_id = p.reservation_id
		WHERE p.status <> 'active' AND (r.status, r.unit_ids ? p.unit_id) IS DISTINCT FROM (CASE p.status WHEN 'inactive' THEN 'committed' ELSE 'held' END, true)`,
	"holds of an ended checkout": `
		SELECT count(*)
		FROM reservations r
		JOIN checkouts c USING (tenant_id, checkout_id)
		WHERE r.status = 'held' AND c.ended_at IS NOT NULL`,
	"committed holds of a checkout that is not committed": `
		SELECT count(*)
		FROM checkouts c
		JOIN reservations r USING (tenant_id, checkout_id)
		WHERE (r.status = 'committed') <> (c.status = 'committed') AND c.ended_at IS NOT NULL AND c.alert IS DISTINCT FROM 'stock_lost'`,
	"checkouts without an audit row for each transition": `
		SELECT count(*)
		FROM checkouts c
		WHERE (SELECT array_agg(a.action ORDER BY a.audit_id) FROM audit_log a WHERE a.target_id = c.checkout_id AND a.action <> 'checkout.extended')
		      <> ARRAY['checkout.begun'] || CASE WHEN c.status IN ('finalizing', 'committed', 'failed') THEN ARRAY['checkout.paid'] ELSE '{}' END
		         || CASE WHEN c.ended_at IS NOT NULL THEN ARRAY['checkout.' || c.status] ELSE '{}' END
		         || CASE WHEN c.alert IS NOT NULL THEN ARRAY['checkout.alert'] ELSE '{}' END`,
	"holds without one audit row of their ending": `
		SELECT count(*)
		FROM reservations r
		WHERE (SELECT count(*) FROM audit_log a WHERE a.target_id = r.reservation_id
		       AND a.action IN ('reservation.committed', 'reservation.released', 'reservation.expired')) <> (r.status <> 'held')::int`,
}

// sound fails the test if the database has a fault.
func (s *fixture) sound() {
	s.TB.Helper()
	for name, sql := range faults {
		if n := s.Int(sql); n != 0 {
			s.TB.Errorf("%d %s", n, name)
		}
	}
}

// verified fails the test if the invariants of package verify do not hold. It
// is for tests that change no row by hand. Their stocks have no record, and
// their holds no requests.
func (s *fixture) verified() {
	s.TB.Helper()
	report, err := verify.Run(s.TB.Context(), s.DB, verify.Config{})
	s.Must(err)
	for _, check := range report.Checks {
		if check.Broken > 0 && check.Name != "stock_recorded" && check.Name != "hold_has_request" {
			s.TB.Errorf("%s: %s", check.Name, check.Sample)
		}
	}
}
