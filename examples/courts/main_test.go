package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
)

func Example_bookDay() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		if err := bookDay(ctx, db, os.Stdout); err != nil {
			log.Panic(err)
		}
	})
	// Output:
	// ann: 9 to 11, paid: true
	// ben: 10 to 12, paid: true
	// cem: no court from 10 to 11, 0 of 2 are free
	// dana: 11 to 12, paid: false
	// eve: 11 to 12, paid: true
}
