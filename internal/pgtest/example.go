package pgtest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Example runs do with a database as [New] gives one, for a runnable example, which has no testing.TB. What would fail a
// test panics.
func Example(do func(ctx context.Context, db *pgxpool.Pool)) {
	t := &exampleTB{}
	defer t.end()
	do(context.Background(), New(t))
}

// exampleTB is as much of a testing.TB as this package uses.
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
