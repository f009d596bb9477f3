package postings_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/postings"
)

func (h *fixture) reserveAny(wanted postings.Any, owner uuid.UUID) []string {
	h.TB.Helper()
	ids, err := postings.ReserveAny(h.TB.Context(), h.DB, h.block, wanted, owner)
	h.Must(err)
	return ids
}

// Any units are the first free ones; neighbours are the first run that is long
// enough. All or none are reserved.
func TestReserveAny(t *testing.T) {
	t.Parallel()
	h := newFixture(t, 9)
	reserve(h, uuid.New(), "s2", "s6")
	for _, tc := range []struct {
		wanted postings.Any
		want   []string
	}{
		{postings.Any{Count: 4, Contiguous: true}, nil},
		{postings.Any{Count: 3, Contiguous: true}, []string{"s3", "s4", "s5"}},
		{postings.Any{Count: 5}, nil},
		{postings.Any{Count: 2}, []string{"s1", "s7"}},
		{postings.Any{Count: 2, Contiguous: true}, []string{"s8", "s9"}},
		{postings.Any{Count: 1}, nil},
	} {
		if got := h.reserveAny(tc.wanted, uuid.New()); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: reserved %v, want %v", tc.wanted, got, tc.want)
		}
	}
}

// 64 callers want 4 of 200 seats each. Exactly 50 get them, and no seat is free
// while a caller is refused.
func TestReserveAnyCrowd(t *testing.T) {
	t.Parallel()
	for _, contiguous := range []bool{false, true} {
		t.Run(fmt.Sprintf("contiguous %t", contiguous), func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, 200)
			var won atomic.Int64
			var callers sync.WaitGroup
			for range 64 {
				callers.Go(func() {
					if h.reserveAny(postings.Any{Count: 4, Contiguous: contiguous}, uuid.New()) != nil {
						won.Add(1)
					}
				})
			}
			callers.Wait()
			// Callers that reserve runs at the same time may leave gaps that are
			// too short for another one.
			if n := won.Load(); n != 50 && !contiguous || n < 34 {
				t.Errorf("%d callers have their seats, of 200 seats %v", n, h.count())
			}
		})
	}
}

// A caller that finds too few units without a lock waits for locked ones, and
// gets those that are given back.
func TestReserveAnyWaits(t *testing.T) {
	t.Parallel()
	for _, contiguous := range []bool{false, true} {
		t.Run(fmt.Sprintf("contiguous %t", contiguous), func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, 4)
			rival, err := h.DB.Begin(t.Context())
			h.Must(err)
			defer func() { _ = rival.Rollback(context.Background()) }()
			n, err := postings.ReserveTx(t.Context(), rival, h.block, []string{"s2"}, uuid.New())
			if n != 1 || err != nil {
				t.Fatal(n, err)
			}
			got := make(chan []string, 1)
			go func() { got <- h.reserveAny(postings.Any{Count: 4, Contiguous: contiguous}, uuid.New()) }()
			pgtest.UntilBlocked(t, h.DB, 1)
			h.Must(rival.Rollback(t.Context()))
			if ids := <-got; !slices.Equal(ids, seats(1, 4)) {
				t.Errorf("reserved %v, want all four", ids)
			}
		})
	}
}

// Callers of names and callers of numbers lock units in one order.
func TestNoDeadlock(t *testing.T) {
	t.Parallel()
	h := newFixture(t, 60)
	backwards := seats(1, 60)
	slices.Reverse(backwards)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for range 40 {
				owner := uuid.New()
				switch i % 3 {
				case 0:
					release(h, owner, h.reserveAny(postings.Any{Count: 30}, owner)...)
				case 1:
					h.reserveAny(postings.Any{Count: 30, Contiguous: true}, owner)
					release(h, owner, backwards...)
				case 2:
					reserve(h, owner, backwards...)
					release(h, owner, seats(1, 60)...)
				}
			}
		})
	}
	callers.Wait()
	if n := h.count()["active"]; n != 60 {
		t.Errorf("%d of 60 units are active after all were released", n)
	}
}

// Counts out of range are refused before anything is read.
func TestReserveAnyRange(t *testing.T) {
	t.Parallel()
	h := newFixture(t, 1)
	for _, n := range []int{-1, 0, 1000 + 1} {
		err := pgx.BeginFunc(t.Context(), h.DB, func(tx pgx.Tx) error {
			_, err := postings.ReserveAnyTx(t.Context(), tx, h.block, postings.Any{Count: n}, uuid.New())
			return err
		})
		if err == nil {
			t.Errorf("%d units were reserved", n)
		}
	}
}
