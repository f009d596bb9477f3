package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	// moveMax bounds a move with all its repetitions. A fence is made and removed
	// between the transactions of all tenants, which takes long under load.
	moveMax = 5 * time.Minute
	// killedWithin is the time in which a mover that is killed is killed.
	killedWithin = 3 * time.Second
)

const anyShopSQL = `
SELECT t.name
FROM tenants t JOIN tenant_state s USING (tenant_id)
WHERE s.state = 'active' AND t.name LIKE 'shop %'
ORDER BY random()
LIMIT 1`

// move moves one of the shops to another cell. One mover in two is killed. The move
// is repeated until it succeeds, as operators do.
func (b *injector) move(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(b.timeout(moveMax), 10*time.Minute))
	defer cancel()
	shop, to, err := b.anyMove(ctx)
	if err != nil {
		return ignoreOutage(err)
	}
	args := []string{"cells", "move", shop, "--to", to, "--pause-max", b.timeout(10 * time.Second).String(), "--linger", "10s"}
	moved := false
	if rand.IntN(2) == 0 { //nolint:gosec // no secret
		killed, stop := context.WithTimeout(ctx, rand.N(killedWithin)) //nolint:gosec // no secret
		_, err := b.command(killed, newVersion, "holdfast", args...)
		stop()
		moved = err == nil
	}
	for !moved {
		out, err := b.command(ctx, newVersion, "holdfast", args...)
		moved = err == nil
		if !moved && sleep.For(ctx, 200*time.Millisecond) != nil {
			b.findings.Add(ruleMove, "%v: %s", err, out)
			return nil
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moved++
	return nil
}

// anyMove draws a shop, and a cell that does not have it. Errors: pgx.ErrNoRows if
// no cell has a shop.
func (b *injector) anyMove(ctx context.Context) (shop, to string, err error) {
	cells := b.databases()
	for _, from := range rand.Perm(len(cells)) { //nolint:gosec // no secret
		err = b.dbs[from].QueryRow(ctx, anyShopSQL).Scan(&shop)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		others := slices.Delete(cells, from, from+1)
		return shop, others[rand.IntN(len(others))], err //nolint:gosec // no secret
	}
	return "", "", err
}
