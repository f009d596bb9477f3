package hot

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/requests"
)

// promoteSQL finds a variant where the pass saw it, or not at all: if somebody moved it meanwhile, to a slot that is not
// locked, it leaves it there.
const promoteSQL = `
INSERT INTO hot_variants AS h (tenant_id, variant_id, slot, why)
VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, variant_id) DO UPDATE
SET state = 'entering', pinned = false, why = excluded.why, admitted_before = NULL, moved_at = clock_timestamp()
WHERE h.state = 'leaving' AND h.slot = excluded.slot`

const demoteSQL = `
UPDATE hot_variants h
SET state = 'leaving', why = $4, admitted_before = NULL, moved_at = clock_timestamp()
WHERE h.tenant_id = $1 AND h.variant_id = $2 AND h.slot = $3 AND h.state <> 'leaving' AND NOT h.pinned`

const divertSQL = `
INSERT INTO diverted_tenants (tenant_id, slot, why)
SELECT $1, $2, $3
FROM lane_slots s
WHERE s.lane = 'normal' AND s.slot = $2
ON CONFLICT (tenant_id) DO NOTHING`

// letBackSQL waits until nothing of the tenant is queued aside: what it sent then would wait for that at the head of the
// stream it shares, before its neighbours. It asks inside a CASE, so that it walks the stream from its mark.
const letBackSQL = `
DELETE FROM diverted_tenants d
WHERE d.tenant_id = $1
  AND NOT EXISTS (
      SELECT
      FROM lane_slots s
      JOIN reservation_requests r ON r.lane = s.lane AND r.slot = s.slot AND r.sequence > s.low_water
      WHERE s.lane = 'normal' AND s.slot = d.slot AND r.status = 'queued' AND CASE WHEN r.tenant_id = $1 THEN true END)`

// moveTx makes the moves that are still right, records each, and rings who has work by them. It locks the slots first; the
// moves of those that it does not get are left to a later pass.
func (d *Detector) moveTx(ctx context.Context, tx pgx.Tx, moves []move) (done Detected, err error) {
	if moves, err = d.reachableTx(ctx, tx, moves); err != nil || len(moves) == 0 {
		return done, err
	}
	origin := audit.Origin{Actor: audit.Job("detector"), CorrelationID: requests.NewID().String()}
	b, wakes := &pgx.Batch{}, []requests.Wake{}
	var entries []audit.Entry
	for _, m := range moves {
		sql, args, count := m.statement(&done)
		b.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() > 0 {
				*count++
				entries = append(entries, m.entry(origin))
				wakes = append(wakes, m.wakes()...)
			}
			return nil
		})
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return done, fmt.Errorf("move %d between the lanes: %w", len(moves), err)
	}
	if err := audit.WriteTx(ctx, tx, entries); err != nil {
		return done, err
	}
	slices.SortFunc(wakes, func(a, b requests.Wake) int { return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Slot, b.Slot)) })
	if wakes = slices.Compact(wakes); len(wakes) == 0 {
		return done, nil
	}
	return done, d.ringer.RingTx(ctx, tx, wakes)
}

// statement is the move's own, with where to count it.
func (m *move) statement(done *Detected) (sql string, args []any, count *int) {
	switch m.action {
	case promoted:
		return promoteSQL, []any{m.TenantID, m.VariantID, m.slot, m.why}, &done.Promoted
	case demoted:
		return demoteSQL, []any{m.TenantID, m.VariantID, m.slot, m.why}, &done.Demoted
	case diverted:
		return divertSQL, []any{m.TenantID, m.slot, m.why}, &done.Diverted
	default:
		return letBackSQL, []any{m.TenantID}, &done.LetBack
	}
}

// place is where requests go, as the audit record has it.
type place struct {
	Lane string `json:"lane"`
	Slot int16  `json:"slot"`
}

// entry is the move's audit row. Its target is the row that was moved: the lane of a variant, or of a tenant's other
// requests where the key is empty.
func (m *move) entry(origin audit.Origin) audit.Entry {
	before, after := place{Lane: requests.Normal}, place{Lane: requests.Normal, Slot: m.slot}
	if m.VariantID != "" {
		after.Lane = requests.Hot
	}
	if m.action == demoted || m.action == letBack {
		before, after = after, before
	}
	origin.Reason = m.why
	return audit.Entry{
		TenantID: m.TenantID, TargetID: audit.TargetOf(m.TenantID, "lane", m.VariantID), Action: m.action, Origin: origin,
		Before: encode(before), After: encode(after),
	}
}

func encode(p place) json.RawMessage {
	text, err := json.Marshal(p)
	if err != nil { // it has a text and a number
		panic(err)
	}
	return text
}

// wakes are who has work by the move.
func (m *move) wakes() []requests.Wake {
	switch m.action {
	case promoted:
		return []requests.Wake{{Lane: requests.Hot, Slot: m.slot}}
	case demoted:
		return []requests.Wake{{Lane: requests.Hot, Slot: m.slot}, {Lane: requests.Normal}}
	default:
		return nil
	}
}
