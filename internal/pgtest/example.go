package pgtest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Example calls do with a database such as [New] returns. It is for runnable
// examples, which have no testing.TB. A failure panics.
func Example(do func(ctx context.Context, db *pgxpool.Pool)) {
	db, drop := ExamplePool()
	defer drop()
	do(context.Background(), db)
}

// ExamplePool is [New] for a runnable example that readers copy and run with
// another pool. drop closes the pool and drops the database.
func ExamplePool() (db *pgxpool.Pool, drop func()) {
	t := &exampleTB{}
	return New(t), t.end
}

// exampleTB implements the methods of testing.TB that this package uses.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper() {}

func (*exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (*exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleTB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *exampleTB) end() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}
