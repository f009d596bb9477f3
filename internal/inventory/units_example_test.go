package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/reservations"
)

// A row of five seats is sold: two that are named, then two neighbours.
func ExampleAddUnitsTx() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		tenant, clerk := uuid.New(), audit.Origin{Actor: audit.User("clerk")}
		row := []inventory.NewUnit{{UnitID: "A1"}, {UnitID: "A2"}, {UnitID: "A3"}, {UnitID: "A4"}, {UnitID: "A5"}}
		for range 2 {
			err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				added, err := inventory.AddUnitsTx(ctx, tx, tenant, "row-a", row, clerk)
				fmt.Println("added", added, err)
				return err
			})
			if err != nil {
				log.Fatal(err)
			}
		}

		terms, err := inventory.Terms{}.WithDefaults()
		if err != nil {
			log.Fatal(err)
		}
		wishes := []inventory.HoldRequest{
			{CartID: "ann", Quantity: 2, UnitIDs: []string{"A2", "A1"}},
			{CartID: "ben", Quantity: 1, UnitIDs: []string{"A2"}},
			{CartID: "cleo", Quantity: 2, Contiguous: true},
		}
		for i := range wishes {
			wishes[i].TenantID, wishes[i].RequestID = tenant, uuid.Must(uuid.NewV7())
			wishes[i].VariantID, wishes[i].Block = "row-a", true
		}
		err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { // as a lane's drain does
			holding, err := inventory.HoldTx(ctx, tx, wishes, terms)
			if err != nil {
				return err
			}
			b := &pgx.Batch{}
			holding.Queue(b)
			return tx.SendBatch(ctx, b).Close()
		})
		if err != nil {
			log.Fatal(err)
		}
		for _, w := range wishes {
			r, err := reservations.Get(ctx, db, tenant, w.RequestID)
			fmt.Println(w.CartID, r.UnitIDs, errors.Is(err, reservations.ErrNotFound))
		}
		counts, err := inventory.CountUnits(ctx, db, tenant, "row-a")
		fmt.Println(counts.Active, counts.Pending, counts.Inactive, err)
	})
	// Output:
	// added 5 <nil>
	// added 0 <nil>
	// ann [A1 A2] false
	// ben [] true
	// cleo [A3 A4] false
	// 1 4 0 <nil>
}
