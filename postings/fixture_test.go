package postings_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/postings"
)

// fixture is a database with one block of units.
type fixture struct {
	pgtest.Fixture
	block postings.Block
}

// newFixture makes a block of n seats: s1, s2 and so on.
func newFixture(t *testing.T, n int) *fixture {
	t.Helper()
	h := &fixture{pgtest.NewFixture(t), postings.Block{TenantID: uuid.New(), Block: "hall"}}
	h.add(seats(1, n)...)
	return h
}

// seats are the ids of the seats from first to last.
func seats(first, last int) []string {
	ids := make([]string, 0, last-first+1)
	for i := first; i <= last; i++ {
		ids = append(ids, fmt.Sprintf("s%d", i))
	}
	return ids
}

func (h *fixture) add(ids ...string) {
	h.TB.Helper()
	h.Must(pgx.BeginFunc(h.TB.Context(), h.DB, func(tx pgx.Tx) error {
		units := make([]postings.Unit, len(ids))
		for i, id := range ids {
			units[i] = postings.Unit{UnitID: id, Position: int64(i + 1)}
		}
		_, err := postings.InsertTx(h.TB.Context(), tx, h.block, units)
		return err
	}))
}

// verb is Reserve, Release or Finalize.
type verb func(h *fixture, owner uuid.UUID, ids ...string) int64

func reserve(h *fixture, owner uuid.UUID, ids ...string) int64 {
	h.TB.Helper()
	n, err := postings.Reserve(h.TB.Context(), h.DB, h.block, ids, owner)
	h.Must(err)
	return n
}

func release(h *fixture, owner uuid.UUID, ids ...string) int64 {
	h.TB.Helper()
	n, err := postings.Release(h.TB.Context(), h.DB, h.block, ids, owner)
	h.Must(err)
	return n
}

func finalize(h *fixture, owner uuid.UUID, ids ...string) int64 {
	h.TB.Helper()
	n, err := postings.Finalize(h.TB.Context(), h.DB, h.block, ids, owner)
	h.Must(err)
	return n
}

// count counts the units of the block by status.
func (h *fixture) count() map[string]int {
	h.TB.Helper()
	units, err := postings.List(h.TB.Context(), h.DB, h.block, "", 1_000_000)
	h.Must(err)
	counts := make(map[string]int)
	for _, u := range units {
		counts[u.Status]++
	}
	return counts
}
