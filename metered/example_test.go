package metered_test

import (
	"context"
	"log"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
)

// The examples of this package are functions of a context and a pool, which can
// be copied. They need a pool of a database with the tables of migrations.Up,
// also of those with Config.Metered.

// shop is the tenant of the examples.
var shop = uuid.MustParse("01900000-0000-7000-8000-000000000002")

// onPool runs an example on a pool of a new database.
func onPool(example func(ctx context.Context, db *pgxpool.Pool) error) {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		if err := migrations.Up(ctx, db, &migrations.Config{Metered: true}); err != nil {
			log.Fatal(err)
		}
		if err := example(ctx, db); err != nil {
			log.Fatal(err)
		}
	})
}
