package baselines

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
)

const (
	holdsInsert = `
INSERT INTO baseline.holds (tenant_id, hold_id, variant_id, cart_id, quantity, expires_at)
SELECT h.tenant_id, h.hold_id, h.variant_id, h.cart_id, h.quantity, $6::timestamptz
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[]) AS h (tenant_id, hold_id, variant_id, cart_id, quantity)`
	auditsInsert = `
INSERT INTO baseline.audit (tenant_id, hold_id, action, after)
SELECT a.tenant_id, a.hold_id, 'hold.held', a.after
FROM unnest($1::uuid[], $2::uuid[], $3::jsonb[]) AS a (tenant_id, hold_id, after)`
	stocksUpdate = `
UPDATE baseline.stocks s
SET reserved = s.reserved + w.quantity
FROM (SELECT tenant_id, variant_id, sum(quantity)::bigint AS quantity
      FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS w (tenant_id, variant_id, quantity)
      GROUP BY tenant_id, variant_id) w
WHERE s.tenant_id = w.tenant_id AND s.variant_id = w.variant_id`
)

// MicroBatch gathers callers inside one process: while one group's transaction
// commits, the next one gathers. It is the baseline to beat, because it has
// ninety lines. It lacks everything that outlives a process.
type MicroBatch struct {
	db   *pgxpool.Pool
	line chan *waiting
}

type waiting struct {
	request  Request
	answered chan error
}

// groupMax is how many requests one transaction takes at most.
const groupMax = 500

// NewMicroBatch makes a micro-batcher; Run makes it work.
func NewMicroBatch(db *pgxpool.Pool) *MicroBatch {
	return &MicroBatch{db: db, line: make(chan *waiting, 8192)}
}

// Hold holds the units. Errors: ErrSoldOut.
func (m *MicroBatch) Hold(ctx context.Context, r Request) error {
	w := &waiting{r, make(chan error, 1)}
	select {
	case m.line <- w:
		return <-w.answered
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run commits groups until ctx ends, after the last caller has been answered.
func (m *MicroBatch) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-m.line:
			group := append(make([]*waiting, 0, len(m.line)+1), first)
			for len(m.line) > 0 && len(group) < groupMax {
				group = append(group, <-m.line)
			}
			m.commit(ctx, group)
		}
	}
}

// commit answers the group. If a variant is sold out, it splits the group and
// commits the halves.
func (m *MicroBatch) commit(ctx context.Context, group []*waiting) {
	err := m.write(ctx, group)
	if soldOut := pg.Constraint(err) == "stocks_no_oversell"; soldOut && len(group) > 1 {
		m.commit(ctx, group[:len(group)/2])
		m.commit(ctx, group[len(group)/2:])
		return
	} else if soldOut {
		err = ErrSoldOut
	}
	for _, w := range group {
		w.answered <- err
	}
}

// write is the group's transaction, in one round trip, the stock's row locked
// last.
func (m *MicroBatch) write(ctx context.Context, group []*waiting) error {
	n := len(group)
	// IDs in the form that pgx sends unchanged: it converts a uuid.UUID in a
	// slice to text.
	ids, texts, quantities, after := make([][16]byte, 2*n), make([]string, 2*n), make([]int64, n), make([]json.RawMessage, n)
	tenants, holds, variants, carts := ids[:n], ids[n:], texts[:n], texts[n:]
	expires := time.Now().Add(ttl)
	for i, w := range group {
		r := &w.request
		tenants[i], holds[i], variants[i], carts[i], quantities[i] = r.TenantID, r.HoldID, r.VariantID, r.CartID, r.Quantity
		after[i] = r.after()
	}
	b := &pgx.Batch{} // sent as one implicit transaction
	b.Queue(holdsInsert, tenants, holds, variants, carts, quantities, expires)
	b.Queue(auditsInsert, tenants, holds, after)
	b.Queue(stocksUpdate, tenants, variants, quantities)
	return m.db.SendBatch(ctx, b).Close()
}
