package requestrows

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
)

// highestSQL reads one row per stream. A low-water mark, or a variant that
// moves between the lanes, may have a number whose request is purged.
const highestSQL = `
SELECT greatest(
    (SELECT max(h.admitted_before) FROM hot_variants h),
    max(s.low_water),
    max(newest.sequence))
FROM lane_slots s
LEFT JOIN LATERAL (
    SELECT r.sequence
    FROM reservation_requests r
    WHERE r.lane = s.lane AND r.slot = s.slot
    ORDER BY r.sequence DESC
    LIMIT 1
) newest ON true`

// highestAuditSQL also reads the subscriptions: the rows before their positions
// may be purged.
const highestAuditSQL = `
SELECT greatest(
    (SELECT max(s.next) FROM audit_subscriptions s),
    (SELECT a.audit_id FROM audit_log a ORDER BY a.audit_id DESC LIMIT 1))`

// Sequences are the sequences whose numbers are an order: of requests, and of
// audit rows.
var Sequences = []horizon.Numbers{
	{Sequence: "reservation_requests_sequence_seq", Table: "reservation_requests", Highest: highestSQL},
	{Sequence: "audit_log_audit_id_seq", Table: "audit_log", Highest: highestAuditSQL},
}

// CheckSequences returns an error if a sequence draws numbers that exist
// already.
func CheckSequences(ctx context.Context, db interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}) error {
	positions := make([]horizon.Position, len(Sequences))
	b := &pgx.Batch{}
	for i := range Sequences {
		Sequences[i].Queue(b, &positions[i])
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("check the sequences: %w", err)
	}
	for i, p := range positions {
		if p.Behind() {
			return fmt.Errorf("the sequence %s is at %d, behind the number %d in the database: restart a program, which raises it",
				Sequences[i].Sequence, p.Drawn, p.Highest)
		}
	}
	return nil
}
