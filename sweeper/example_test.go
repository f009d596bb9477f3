package sweeper_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/sweeper"
)

// A schedule, a ticker or a one-shot program calls RunOnce. It is correct
// whenever and however often it is called.
func ExampleSweeper_RunOnce() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		s, err := sweeper.New(db, slog.Default(), sweeper.Config{})
		if err != nil {
			log.Fatal(err)
		}
		report, err := s.RunOnce(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("expired:", report.ExpiredCount)
	})
	// Output: expired: 0
}
