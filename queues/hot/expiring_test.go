package hot_test

import (
	"fmt"
	"testing"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
)

// Requests arrive in rounds, the holds of each round are due when the next
// round is decided, and no sweep runs. The due holds never exceed those of one
// round, although no request needs their units. An earlier backlog shrinks
// meanwhile.
func TestDrainExpiresItsVariants(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	const round, backlog = 40, 3000
	b.Stock("shoe", 1_000_000)
	lane := b.Lane(queues.LaneConfig{})
	b.Tick(lane) // the move ends
	b.Exec(`INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), 'inventory.variant', 'shoe', 'old-' || n, 1, at, at, at
		FROM generate_series(1, $2::integer) AS n, (SELECT clock_timestamp() - interval '1 hour' AS at) AS past`, b.Tenant, backlog)
	b.Exec(`UPDATE inventory_stocks SET reserved = $1`, backlog)
	for n := range 10 {
		for i := range round {
			b.Submit(fmt.Sprint("cart-", n, "-", i), "shoe", 1)
		}
		b.Tick(lane)
		b.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE status = 'held' AND expires_at > clock_timestamp()`)
		most := max(backlog+n*round-(n+1)*500, 0) + round
		if due := b.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`); due > int64(most) {
			t.Fatalf("after round %d %d holds are due, want %d at most", n, due, most)
		}
	}
	if n := b.Int(`SELECT reserved FROM inventory_stocks`); n != round {
		t.Errorf("%d are reserved, want the last round's %d", n, round)
	}
}
