package boot

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
)

func TestKitAvailability(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx, tenant, clerk := t.Context(), uuid.New(), audit.Origin{Actor: audit.User("clerk")}
	for _, patch := range []inventory.StockPatch{{Stock: new(int64(7))}, {Tracked: new(false)}} {
		variant := map[bool]string{true: "peg", false: "map"}[patch.Stock != nil]
		_, err := inventory.Set(ctx, db, tenant, variant, patch, clerk)
		pgtest.Must(t, err)
	}
	for kit, parts := range map[string][]inventory.KitPart{"camp": {{VariantID: "peg", Quantity: 3}, {VariantID: "map", Quantity: 1}}, "maps": {{VariantID: "map", Quantity: 1}}} {
		pgtest.Must(t, pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := inventory.SetKitTx(ctx, tx, tenant, kit, parts, clerk)
			return err
		}))
	}
	sample := kitAvailability(db)
	for key, want := range map[string]string{"camp": `{"kit_id":"camp","available":2}`, "maps": `{"kit_id":"maps","available":null}`, "gone": "null", "..": "null"} {
		got, err := sample(ctx, tenant, key)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", key, got, err, want)
		}
	}
}
