package hot_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// Two who move the same variants in opposite orders wait for each other's end, and never for each other.
func TestPinsOfSeveral(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Hot, hot.NewLane)
	forth := []string{"a", "b", "c", "d", "e", "f"}
	back := slices.Clone(forth)
	slices.Reverse(back)
	var hands sync.WaitGroup
	for i, order := range [][]string{forth, back, forth, back} {
		move := hot.PinTx
		if i > 1 {
			move = hot.UnpinTx
		}
		hands.Go(func() {
			for range 30 {
				err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
					if err := hot.LockSlotsTx(t.Context(), tx, b.Tenant, order); err != nil {
						return err
					}
					for _, variant := range order {
						if err := move(t.Context(), tx, b.Bell, b.Tenant, variant); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	hands.Wait()
	if n := b.Int(`SELECT count(DISTINCT slot) FROM hot_variants`); n < 2 {
		t.Errorf("the variants have %d slots between them: nothing was shown", n)
	}
}
