package inventory_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// stockBundle is the fixture of the tests of stocks. It has a database and two
// tenants.
type stockBundle struct {
	pool   *pgxpool.Pool
	tenant uuid.UUID
	other  uuid.UUID
}

func newStocks(t *testing.T) *stockBundle {
	t.Helper()
	return &stockBundle{pool: pgtest.New(t), tenant: uuid.New(), other: uuid.New()}
}

var clerk = audit.Origin{Actor: audit.User("hf_clerk0"), CorrelationID: "c-1", Reason: "counted"}

// stockRow is a row of inventory_stocks without its times.
type stockRow struct {
	Stock, Reserved    int64
	Tracked, Backorder bool
	HoldTTLSeconds     *int32
	MaxPerCart         *int32
	Lane               lanes.Wish
	Token              bool // whether its admission is token
}

// put writes a row without a verb.
func (b *stockBundle) put(t *testing.T, variantID string, r stockRow) {
	t.Helper()
	if r.Lane == "" {
		r.Lane = lanes.WishAuto
	}
	b.exec(t, `
		INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved, tracked, backorder, hold_ttl_seconds, max_per_cart, lane, admission)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		b.tenant, variantID, r.Stock, r.Reserved, r.Tracked, r.Backorder, r.HoldTTLSeconds, r.MaxPerCart, r.Lane, r.admission())
}

func (r stockRow) admission() string {
	if r.Token {
		return inventory.AdmissionToken
	}
	return inventory.AdmissionOpen
}

// hold writes a held row without a verb. left is the time to its deadline.
func (b *stockBundle) hold(t *testing.T, variantID string, quantity int64, left time.Duration) {
	t.Helper()
	b.exec(t, `
		INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		VALUES ($1, gen_random_uuid(), $2, $3, 'cart', $4, clock_timestamp(), clock_timestamp(), clock_timestamp() + $5::interval)`,
		b.tenant, inventory.Kind, variantID, quantity, left)
}

func (b *stockBundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (b *stockBundle) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// rows returns the tenant's stored stocks.
func (b *stockBundle) rows(t *testing.T) map[string]stockRow {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), `
		SELECT variant_id, stock, reserved, tracked, backorder, hold_ttl_seconds, max_per_cart, lane,
			admission = 'token'
		FROM inventory_stocks
		WHERE tenant_id = $1`, b.tenant)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]stockRow{}
	var id string
	var r stockRow
	_, err = pgx.ForEachRow(rows, []any{&id, &r.Stock, &r.Reserved, &r.Tracked, &r.Backorder, &r.HoldTTLSeconds, &r.MaxPerCart, &r.Lane, &r.Token}, func() error {
		found[id] = r
		r = stockRow{}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// change is one audit row of a stock.
type change struct {
	Action        string
	Before, After string
}

// history returns the record of a variant. The actor, the reason and the
// correlation id of each row must be the clerk's.
func (b *stockBundle) history(t *testing.T, variantID string) []change {
	t.Helper()
	records, err := audit.History(t.Context(), b.pool, b.tenant, audit.TargetOf(b.tenant, "stock", variantID))
	if err != nil {
		t.Fatal(err)
	}
	var changes []change
	for _, r := range records {
		if diff := cmp.Diff(clerk, r.Origin); diff != "" {
			t.Errorf("origin of %s: %s", r.Action, diff)
		}
		changes = append(changes, change{r.Action, canonical(t, r.Before), canonical(t, r.After)})
	}
	return changes
}

// canonical returns JSON with sorted keys, because jsonb sorts them in another
// way.
func canonical(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	if raw == nil {
		return ""
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// image returns a row in the form of the audit log, with sorted keys.
func image(t *testing.T, variantID string, r stockRow) string {
	t.Helper()
	out, err := json.Marshal(map[string]any{
		"variant_id": variantID, "stock": r.Stock, "reserved": r.Reserved, "tracked": r.Tracked, "backorder": r.Backorder,
		"hold_ttl_seconds": r.HoldTTLSeconds, "max_per_cart": r.MaxPerCart, "lane": r.Lane,
		"admission": r.admission(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// invalidField returns the field that an error names, or "".
func invalidField(err error) string {
	if invalid, ok := errors.AsType[*inventory.InvalidError](err); ok {
		return invalid.Field
	}
	return ""
}
