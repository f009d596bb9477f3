package postings_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/postings"
)

// hall is a database with one block of units.
type hall struct {
	t     *testing.T
	db    *pgxpool.Pool
	block postings.Block
}

// newHall makes a block of n seats: s1, s2 and so on.
func newHall(t *testing.T, n int) *hall {
	t.Helper()
	h := &hall{t, pgtest.New(t), postings.Block{TenantID: uuid.New(), Block: "hall"}}
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

func (h *hall) add(ids ...string) {
	h.t.Helper()
	h.must(pgx.BeginFunc(h.t.Context(), h.db, func(tx pgx.Tx) error {
		units := make([]postings.Unit, len(ids))
		for i, id := range ids {
			units[i] = postings.Unit{UnitID: id, Position: int64(i + 1)}
		}
		_, err := postings.InsertTx(h.t.Context(), tx, h.block, units)
		return err
	}))
}

func (h *hall) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// verb is Reserve, Release or Finalize.
type verb func(h *hall, owner uuid.UUID, ids ...string) int64

func reserve(h *hall, owner uuid.UUID, ids ...string) int64 {
	h.t.Helper()
	n, err := postings.Reserve(h.t.Context(), h.db, h.block, ids, owner)
	h.must(err)
	return n
}

func release(h *hall, owner uuid.UUID, ids ...string) int64 {
	h.t.Helper()
	n, err := postings.Release(h.t.Context(), h.db, h.block, ids, owner)
	h.must(err)
	return n
}

func finalize(h *hall, owner uuid.UUID, ids ...string) int64 {
	h.t.Helper()
	n, err := postings.Finalize(h.t.Context(), h.db, h.block, ids, owner)
	h.must(err)
	return n
}

// count counts the units of the block by status.
func (h *hall) count() map[string]int {
	h.t.Helper()
	units, err := postings.List(h.t.Context(), h.db, h.block, "", 1_000_000)
	h.must(err)
	counts := make(map[string]int)
	for _, u := range units {
		counts[u.Status]++
	}
	return counts
}
