package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
)

func ExampleSet() {
	pgtest.Example(func(ctx context.Context, pool *pgxpool.Pool) {
		tenant, who := uuid.New(), audit.Origin{Actor: audit.User("clerk")}
		patch := inventory.StockPatch{Stock: new(int64(100)), MaxPerCart: new(int32(5))}
		stock, err := inventory.Set(ctx, pool, tenant, "rolls/buns", patch, who)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(stock.Stock, stock.Available, stock.Tracked, *stock.MaxPerCart)

		// Fields that are left out do not change.
		patch = inventory.StockPatch{Lane: new(lanes.WishHot)}
		stock, err = inventory.Set(ctx, pool, tenant, "rolls/buns", patch, who)
		fmt.Println(stock.Stock, stock.Lane, err)

		// A new variant needs a stock.
		_, err = inventory.Set(ctx, pool, tenant, "whole milk", patch, who)
		fmt.Println(errors.Is(err, inventory.ErrStockRequired))
	})
	// Output:
	// 100 100 true 5
	// 100 hot <nil>
	// true
}

func ExampleAdjust() {
	pgtest.Example(func(ctx context.Context, pool *pgxpool.Pool) {
		tenant := uuid.New()
		if _, err := inventory.Set(ctx, pool, tenant, "whole milk", inventory.StockPatch{Stock: new(int64(3))}, audit.Origin{}); err != nil {
			log.Fatal(err)
		}
		for _, delta := range []int64{-1, +5, -8} {
			stock, err := inventory.Adjust(ctx, pool, tenant, "whole milk", delta, audit.Origin{Reason: "damaged"})
			fmt.Println(stock.Stock, err)
		}
	})
	// Output:
	// 2 <nil>
	// 7 <nil>
	// 0 adjust stock whole milk: stock would be below what is reserved
}

func ExampleImport() {
	pgtest.Example(func(ctx context.Context, pool *pgxpool.Pool) {
		file := strings.NewReader("variant_id,stock,backorder\n" +
			"rolls/buns,100,\n" +
			"whole milk,many,\n" +
			"soda,0,true\n")
		report, err := inventory.Import(ctx, pool, uuid.New(), inventory.CSV, file, audit.Origin{}, inventory.ImportOptions{})
		fmt.Println(report.Imported, report.Rejected, err)
		for _, line := range report.RejectedLines {
			fmt.Printf("line %d: %s %s\n", line.Line, line.Field, line.Message)
		}
	})
	// Output:
	// 2 1 <nil>
	// line 3: stock must be a whole number in range
}
