package checkouts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

// shop is the fixture: a database, a tenant, and a log.
type shop struct {
	t      testing.TB
	db     *pgxpool.Pool
	tenant uuid.UUID
	config checkouts.Config
	log    *logged
}

func newShop(t testing.TB) *shop {
	t.Helper()
	return shopOn(t, pgtest.New(t))
}

func shopOn(t testing.TB, db *pgxpool.Pool) *shop {
	s := &shop{t: t, db: db, tenant: uuid.New(), log: &logged{}}
	s.config = checkouts.Config{Log: slog.New(slog.NewTextHandler(s.log, nil)), Every: 5 * time.Millisecond}
	return s
}

// logged is a log that several goroutines write.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// errors counts the lines of level ERROR with the text.
func (l *logged) errors(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, "level=ERROR") && strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (s *shop) must(err error) {
	s.t.Helper()
	pgtest.Must(s.t, err)
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	pgtest.Exec(s.t, s.db, sql, args...)
}

func (s *shop) int(sql string, args ...any) int64 {
	s.t.Helper()
	return pgtest.Int(s.t, s.db, sql, args...)
}

// stock makes a variant.
func (s *shop) stock(variant string, stock int64) {
	s.t.Helper()
	s.exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, $2, $3)`, s.tenant, variant, stock)
}

// seats makes a block of n units: s1, s2 and so on.
func (s *shop) seats(block string, n int) {
	s.t.Helper()
	ids := make([]inventory.NewUnit, n)
	for i := range ids {
		ids[i].UnitID = fmt.Sprintf("s%d", i+1)
	}
	s.must(pgx.BeginFunc(s.t.Context(), s.db, func(tx pgx.Tx) error {
		_, err := inventory.AddUnitsTx(s.t.Context(), tx, s.tenant, block, ids, shopper)
		return err
	}))
}

// tryHold makes a hold of the units, or of any if none are named, and returns
// whether it was granted.
func (s *shop) tryHold(ctx context.Context, cart, variant string, quantity int64, unitIDs ...string) (id uuid.UUID, outcome inventory.Outcome, err error) {
	request := inventory.HoldRequest{
		TenantID: s.tenant, RequestID: uuid.Must(uuid.NewV7()), CartID: cart, VariantID: variant, Quantity: quantity,
		UnitIDs: unitIDs, Origin: shopper,
	}
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
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

func (s *shop) hold(cart, variant string, quantity int64, unitIDs ...string) uuid.UUID {
	s.t.Helper()
	id, outcome, err := s.tryHold(s.t.Context(), cart, variant, quantity, unitIDs...)
	s.must(err)
	if outcome != inventory.Granted {
		s.t.Fatalf("%d × %s for cart %s: %s", quantity, variant, cart, outcome)
	}
	return id
}

func (s *shop) start(cart string) checkouts.Start {
	return checkouts.Start{TenantID: s.tenant, CartID: cart, PaymentReference: "pay-" + cart, Origin: shopper}
}

func (s *shop) begin(cart string) checkouts.Checkout {
	s.t.Helper()
	c, err := checkouts.Begin(s.t.Context(), s.db, s.start(cart), s.config)
	s.must(err)
	return c
}

// beginCalled begins a checkout whose payment the Validator finds out about.
func (s *shop) beginCalled(cart string) checkouts.Checkout {
	s.t.Helper()
	start := s.start(cart)
	start.CallbackURL = "https://pay.example/" + cart
	c, err := checkouts.Begin(s.t.Context(), s.db, start, s.config)
	s.must(err)
	return c
}

func (s *shop) answer(id uuid.UUID, result checkouts.Result) (checkouts.Checkout, error) {
	return checkouts.Answer(s.t.Context(), s.db, s.payment(id, result), s.config)
}

func (s *shop) payment(id uuid.UUID, result checkouts.Result) checkouts.Payment {
	return checkouts.Payment{TenantID: s.tenant, CheckoutID: id, Result: result, Origin: bank}
}

func (s *shop) get(id uuid.UUID) checkouts.Checkout {
	s.t.Helper()
	c, err := checkouts.Get(s.t.Context(), s.db, s.tenant, id)
	s.must(err)
	return c
}

// recovery is a Recovery with another pool, as another process has it.
func (s *shop) recovery(v checkouts.Validator) *checkouts.Recovery {
	s.t.Helper()
	config := s.config
	config.Validator = v
	r, err := checkouts.NewRecovery(pgtest.Open(s.t, s.db.Config().ConnString()), config)
	s.must(err)
	return r
}

// recover makes one pass, after all unfinished checkouts have become due.
func (s *shop) recover(v checkouts.Validator) checkouts.Report {
	s.t.Helper()
	s.due()
	report, err := s.recovery(v).RunOnce(s.t.Context())
	s.must(err)
	return report
}

// due lets the backoff of all checkouts be over.
func (s *shop) due() {
	s.t.Helper()
	s.exec(`UPDATE checkouts SET next_attempt_at = clock_timestamp() WHERE ended_at IS NULL`)
}

// late makes a checkout's deadline pass. Its holds still have their margin.
func (s *shop) late(id uuid.UUID) {
	s.t.Helper()
	s.exec(`UPDATE checkouts SET deadline = clock_timestamp() WHERE checkout_id = $1`, id)
}

// lapse makes the holds of a checkout due.
func (s *shop) lapse(id uuid.UUID) {
	s.t.Helper()
	s.exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE checkout_id = $1 AND status = 'held'`, id)
}

func (s *shop) sweep() {
	s.t.Helper()
	_, err := inventory.ExpireDue(s.t.Context(), s.db, 1000)
	s.must(err)
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
func (s *shop) conflict(err error) *checkouts.ConflictError {
	s.t.Helper()
	conflict, ok := errors.AsType[*checkouts.ConflictError](err)
	if !ok {
		s.t.Fatalf("%v, want a *ConflictError", err)
	}
	return conflict
}

// wantCheckout fails the test unless the checkout is in the state.
func (s *shop) wantCheckout(id uuid.UUID, status checkouts.Status, reason checkouts.Reason, alert checkouts.Alert) {
	s.t.Helper()
	if c := s.get(id); c.Status != status || c.Reason != reason || c.Alert != alert {
		s.t.Errorf("checkout: %s %q, alert %q; want %s %q, alert %q", c.Status, c.Reason, c.Alert, status, reason, alert)
	}
}

// wantHolds fails the test unless all holds of the checkout have the status.
func (s *shop) wantHolds(id uuid.UUID, status reservations.Status) {
	s.t.Helper()
	holds, err := checkouts.Holds(s.t.Context(), s.db, s.tenant, id)
	s.must(err)
	for _, h := range holds {
		if h.Status != status {
			s.t.Errorf("hold of %d × %s is %s, want %s", h.Quantity, h.ResourceKey, h.Status, status)
		}
	}
}

// wantStock fails the test unless the variant has these counters.
func (s *shop) wantStock(variant string, stock, reserved int64) {
	s.t.Helper()
	got, err := inventory.Get(s.t.Context(), s.db, s.tenant, variant)
	s.must(err)
	if got.Stock != stock || got.Reserved != reserved {
		s.t.Errorf("%s: stock %d, reserved %d, want %d and %d", variant, got.Stock, got.Reserved, stock, reserved)
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
func (s *shop) sound() {
	s.t.Helper()
	for name, sql := range faults {
		if n := s.int(sql); n != 0 {
			s.t.Errorf("%d %s", n, name)
		}
	}
}

// verified fails the test if the invariants of package verify do not hold. It
// is for tests that change no row by hand. Their stocks have no record, and
// their holds no requests.
func (s *shop) verified() {
	s.t.Helper()
	report, err := verify.Run(s.t.Context(), s.db, verify.Config{})
	s.must(err)
	for _, check := range report.Checks {
		if check.Broken > 0 && check.Name != "stock_recorded" && check.Name != "hold_has_request" {
			s.t.Errorf("%s: %s", check.Name, check.Sample)
		}
	}
}
