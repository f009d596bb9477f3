package check

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/chaos/traffic"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// at is the moment that many seconds after a fixed time.
func at(seconds int) time.Time {
	return time.Unix(1_800_000_000, 0).Add(time.Duration(seconds) * time.Second)
}

// validShop is a shop with one request that was held and committed, and no
// violation.
func validShop() *checker {
	tenant := &traffic.Tenant{ID: uuid.New(), Name: "shop", Variants: []traffic.Variant{{ID: "ordered", Stock: 10, Role: traffic.Ordered}}}
	id, ended := uuid.New(), at(5)
	q := &traffic.Request{
		Tenant: tenant, Cart: "cart", Variant: "ordered", Quantity: 2, Key: "key", Correlation: "c", Sent: at(1), Acked: at(2), ID: id,
		Final: &traffic.View{Status: "done", UpdatedAt: at(3), Reservation: &traffic.Reservation{ReservationID: id}},
	}
	stock, free, yes := int64(10), int64(0), true
	return &checker{
		findings: traffic.NewFindings(), tenants: []*traffic.Tenant{tenant},
		facts: traffic.Facts{
			Requests:  []*traffic.Request{q},
			Verbs:     []*traffic.Verb{{Tenant: tenant, Action: "reservation.committed", Targets: []uuid.UUID{id}, Correlation: "v", Outcome: traffic.Done}},
			Deadlines: map[uuid.UUID]time.Time{id: at(9)}, Endings: map[uuid.UUID]string{id: "committed"},
			Adjusted: map[traffic.StockRef]int64{}, NotDone: map[string]string{"n": "503 overloaded"},
		},
		rows: map[uuid.UUID]requestRow{id: {
			TenantID: tenant.ID, ID: id, Status: "done", Cart: "cart", Variant: "ordered", Quantity: 2, Key: "key", Correlation: "c", Lane: "hot", UpdatedAt: at(3),
		}},
		keys:         map[keyRef][]uuid.UUID{{tenant.ID, "key"}: {id}},
		correlations: map[string]int{"c": 1},
		reserved: map[uuid.UUID]reservationRow{id: {
			ID: id, Variant: "ordered", Holder: "cart", Status: "committed", Quantity: 2, ExpiresAt: at(9), EndedAt: &ended, TenantID: tenant.ID,
		}},
		record: []auditRow{
			{ID: 1, Transaction: 1, TenantID: tenant.ID, Target: uuid.New(), Action: "stock.set", Variant: "ordered", Stock: &stock, Reserved: &free, Bounded: &yes},
			{ID: 2, Transaction: 2, TenantID: tenant.ID, Target: id, Action: "reservation.held", Variant: "ordered", Quantity: 2},
			{ID: 3, Transaction: 3, TenantID: tenant.ID, Target: id, Action: "reservation.committed", Variant: "ordered", Quantity: 2},
		},
		decided: map[uuid.UUID]auditRow{id: {ID: 2, Transaction: 2}},
		effects: map[effect]int{{"v", "reservation.committed", id}: 1},
		stock:   map[traffic.StockRef]stockRow{{TenantID: tenant.ID, Variant: "ordered"}: {tenant.ID, "ordered", 8, 0}},
	}
}

func (c *checker) request0() *traffic.Request { return c.facts.Requests[0] }

// row makes a change of the request's row.
func (c *checker) row(change func(*requestRow)) {
	r := c.rows[c.request0().ID]
	change(&r)
	c.rows[r.ID] = r
}

func (c *checker) hold(change func(*reservationRow)) {
	r := c.reserved[c.request0().ID]
	change(&r)
	c.reserved[r.ID] = r
}

// Each broken rule is found. Valid rows break none.
func TestFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(*checker)
		rules  []string
	}{
		"nothing":                {func(*checker) {}, nil},
		"a request is lost":      {func(c *checker) { delete(c.rows, c.request0().ID) }, []string{traffic.RuleNotLost}},
		"a request is undecided": {func(c *checker) { c.row(func(r *requestRow) { r.Status = "queued" }) }, []string{RuleDecided, traffic.RuleUnchanged}},
		"a request failed with an internal error": {func(c *checker) { c.row(func(r *requestRow) { r.Reason = "internal_error" }) }, []string{RuleDecided, traffic.RuleUnchanged}},
		"a request has another cart":              {func(c *checker) { c.row(func(r *requestRow) { r.Cart = "other" }) }, []string{traffic.RuleRequestKept}},
		"a final answer changed":                  {func(c *checker) { c.row(func(r *requestRow) { r.UpdatedAt = at(4) }) }, []string{traffic.RuleUnchanged}},
		"a cancelled request was decided":         {func(c *checker) { c.request0().Cancelled = true }, []string{traffic.RuleUnchanged}},
		"two requests have one key":               {func(c *checker) { c.twice() }, []string{traffic.RuleIdempotent}},
		"a key has another request":               {func(c *checker) { c.keys[keyRef{c.tenants[0].ID, "key"}][0] = uuid.New() }, []string{traffic.RuleIdempotent}},
		"one call made two requests":              {func(c *checker) { c.correlations["c"] = 2 }, []string{traffic.RuleIdempotent}},
		"a refused call made a request":           {func(c *checker) { c.correlations["n"] = 1 }, []string{RuleNothing}},
		"a keyed call has no answer":              {func(c *checker) { c.request0().Unknown = true }, []string{traffic.RuleAnswer}},
		"a hold is for fewer units":               {func(c *checker) { c.request0().Quantity = 3; c.row(func(r *requestRow) { r.Quantity = 3 }) }, []string{traffic.RuleRequestKept}},
		"a committed reservation was released":    {func(c *checker) { c.facts.Endings[c.request0().ID] = "released" }, []string{traffic.RuleOneEnding}},
		"a hold expired early":                    {func(c *checker) { c.expired() }, []string{RuleDeadline}},
		"a deadline moved back": {func(c *checker) {
			c.expired()
			c.hold(func(r *reservationRow) { r.EndedAt, r.ExpiresAt = new(at(10)), at(8) })
		}, []string{RuleDeadline}},
		"a verb was done twice":                  {func(c *checker) { c.effects[effect{"v", "reservation.committed", c.request0().ID}] = 2 }, []string{traffic.RuleIdempotent}},
		"a PUT was repeated":                     {func(c *checker) { c.effects[effect{"p", "kit.set", c.request0().ID}] = 2 }, nil},
		"a verb was not done":                    {func(c *checker) { clear(c.effects) }, []string{traffic.RuleIdempotent}},
		"a refused verb was done":                {func(c *checker) { c.facts.Verbs[0].Outcome = traffic.Refused }, []string{RuleNothing}},
		"the record has more endings than holds": {func(c *checker) { c.record = append(c.record, c.record[2]) }, []string{RuleRecorded}},
		"the record oversells":                   {func(c *checker) { *c.record[0].Stock = 1 }, []string{RuleRecorded}},
		"units are lost":                         {func(c *checker) { c.stockIs(7, 0) }, []string{RuleConserved}},
		"units are held by no cart":              {func(c *checker) { c.stockIs(8, 1) }, []string{RuleConserved}},
		"an adjustment was not made": {func(c *checker) {
			c.facts.Adjusted[traffic.StockRef{TenantID: c.tenants[0].ID, Variant: "ordered"}] = 1
		}, []string{RuleConserved}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checked := validShop()
			c.damage(checked)
			checked.compare()
			rules := map[string]bool{}
			for _, k := range checked.findings.Kinds() {
				rules[k.Name] = true
			}
			for _, want := range c.rules {
				if !rules[want] {
					t.Errorf("not found: %s", want)
				}
			}
			if len(c.rules) == 0 && (len(rules) > 0 || checked.ordered != 1) {
				t.Errorf("%d in order checks, found %v", checked.ordered, checked.findings.Kinds())
			}
		})
	}
}

func (c *checker) twice() {
	ref := keyRef{c.tenants[0].ID, "key"}
	c.keys[ref] = append(c.keys[ref], uuid.New())
}

func (c *checker) stockIs(stock, reserved int64) {
	ref := traffic.StockRef{TenantID: c.tenants[0].ID, Variant: "ordered"}
	c.stock[ref] = stockRow{ref.TenantID, ref.Variant, stock, reserved}
}

func (c *checker) expired() { c.hold(func(r *reservationRow) { r.Status = "expired" }) }

// An inversion is a request that was acknowledged before another one was sent,
// and decided in a later transaction.
func TestInversions(t *testing.T) {
	t.Parallel()
	p := func(sent, acked int, audit, transaction int64, held bool) decision {
		return decision{sent: at(sent), acked: at(acked), audit: audit, transaction: transaction, unitsHeld: held}
	}
	short := func(sent, acked int, audit, transaction int64) decision {
		d := p(sent, acked, audit, transaction, false)
		d.what = "out_of_stock"
		return d
	}
	for name, c := range map[string]struct {
		line []decision
		want int
	}{
		"none":                                  {nil, 0},
		"in order":                              {[]decision{p(1, 2, 1, 1, true), p(3, 4, 2, 2, true)}, 0},
		"at the same time":                      {[]decision{p(2, 5, 1, 1, true), p(1, 3, 2, 2, true)}, 0},
		"in the wrong order":                    {[]decision{p(3, 4, 1, 1, true), p(1, 2, 2, 2, true)}, 1},
		"one transaction":                       {[]decision{p(3, 4, 1, 1, true), p(1, 2, 2, 1, true)}, 0},
		"one transaction, the first refused":    {[]decision{p(3, 4, 1, 1, true), p(1, 2, 2, 1, false)}, 1},
		"one transaction, the second refused":   {[]decision{p(1, 2, 1, 1, true), p(3, 4, 2, 1, false)}, 0},
		"the first got a unit that was locked":  {[]decision{short(3, 4, 1, 1), p(1, 2, 2, 2, true)}, 0},
		"the first got none, and was late":      {[]decision{short(3, 4, 1, 1), short(1, 2, 2, 2)}, 1},
		"one of two late requests got none":     {[]decision{short(5, 6, 1, 1), p(1, 2, 2, 2, true), short(3, 4, 3, 3)}, 1},
		"the second got the unit and was early": {[]decision{p(3, 4, 1, 1, true), short(1, 2, 2, 2)}, 1},
		"two late requests":                     {[]decision{p(5, 6, 1, 1, true), p(1, 2, 2, 2, true), p(3, 4, 3, 3, true)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, len(inversions(c.line))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The statements can read a migrated database, and find nothing wrong in an
// empty one.
func TestAllReadsTheSchema(t *testing.T) {
	t.Parallel()
	db, findings := pgtest.New(t), traffic.NewFindings()
	if _, err := All(t.Context(), []*pgxpool.Pool{db}, traffic.Facts{}, nil, findings); err != nil {
		t.Fatal(err)
	}
	if !Sample(t.Context(), db, findings) || findings.Count() > 0 {
		t.Errorf("found %v, or a check could not be made", findings.Kinds())
	}
	if n, err := Unfinished(t.Context(), db); n != 0 || err != nil {
		t.Errorf("%d are not decided, %v", n, err)
	}
	if _, err := Stuck(t.Context(), db); err != nil {
		t.Error(err)
	}
	shop, err := tenants.Ensure(t.Context(), db, "shop")
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, db, `INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved) VALUES ($1, 'shirt', 2, 1)`, shop.TenantID)
	if Sample(t.Context(), db, findings); findings.Count() != 1 {
		t.Errorf("a unit without a holder is found as %v", findings.Kinds())
	}
}

// The figures leave out the adds of a variant while it was locked, and those
// that were done when they were inserted.
func TestDecisionTimes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	shop, err := tenants.Ensure(t.Context(), db, "shop")
	if err != nil {
		t.Fatal(err)
	}
	tenant := &traffic.Tenant{ID: shop.TenantID}
	add := func(variant string, created, took int) {
		pgtest.Exec(t, db, `
			INSERT INTO reservation_requests (tenant_id, request_id, kind, cart_id, variant_id, quantity, lane, slot, status, created_at, updated_at)
			VALUES ($1, $2, 'add', 'cart', $3, 1, 'hot', 0, 'done', $4::timestamptz, $4::timestamptz + $5 * interval '1 millisecond')`,
			tenant.ID, uuid.New(), variant, at(created), took)
	}
	add("shoe", 10, 5000)
	add("shoe", 30, 20)
	add("sock", 10, 40)
	add("book", 10, 0)
	lock := Lock{StockRef: traffic.StockRef{TenantID: tenant.ID, Variant: "shoe"}, From: at(12), Until: at(20)}
	got, err := DecisionTimes(t.Context(), db, []*traffic.Tenant{tenant}, []Lock{lock})
	if d := got["hot"]; err != nil || d.Adds != 2 || d.P50MS != 30 {
		t.Errorf("%+v, %v, want two adds that took 20 and 40 ms", got, err)
	}
}
