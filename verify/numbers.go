package verify

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
)

// numbersAheadSQL reads the end of each stream's index entries, and of the
// audit ids'. The streams are those that the requests have, whether their slots
// exist or not. The numbers are read first, because those drawn since are
// higher.
const numbersAheadSQL = `
WITH RECURSIVE stream AS (
    (SELECT r.lane, r.slot FROM reservation_requests AS r ORDER BY r.lane, r.slot LIMIT 1)
    UNION ALL
    SELECT next.lane, next.slot
    FROM stream
    CROSS JOIN LATERAL (
        SELECT r.lane, r.slot
        FROM reservation_requests AS r
        WHERE (r.lane, r.slot) > (stream.lane, stream.slot)
        ORDER BY r.lane, r.slot
        LIMIT 1
    ) AS next
), highest AS MATERIALIZED (
    SELECT 'reservation_requests' AS numbered, max(last.sequence) AS number
    FROM stream
    CROSS JOIN LATERAL (
        SELECT r.sequence
        FROM reservation_requests AS r
        WHERE r.lane = stream.lane AND r.slot = stream.slot
        ORDER BY r.lane DESC, r.slot DESC, r.sequence DESC
        LIMIT 1
    ) AS last
    UNION ALL
    SELECT 'audit_log', (SELECT max(a.audit_id) FROM audit_log AS a)
)
SELECT highest.numbered, highest.number, sequence.drawn
FROM highest
JOIN (
    SELECT 'reservation_requests' AS numbered, ` + horizon.Drawn + ` AS drawn FROM reservation_requests_sequence_seq
    UNION ALL
    SELECT 'audit_log', ` + horizon.Drawn + ` FROM audit_log_audit_id_seq
) AS sequence USING (numbered)
WHERE highest.number > sequence.drawn`

// NumberAhead is a table whose highest number is above the last one that its
// sequence has drawn: the sequence was restored to an earlier state than the
// rows.
type NumberAhead struct {
	// Table is reservation_requests, numbered by its sequence, or audit_log,
	// numbered by audit_id.
	Table string
	// Highest is the highest number of a row, Drawn the last one drawn.
	Highest, Drawn int64
}

// NumbersAhead returns the tables whose highest number is above the last one
// drawn, none if both sequences are right. It reads a few index entries per
// stream, however many rows there are. A transaction that it runs in may have
// an older snapshot.
func NumbersAhead(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) ([]NumberAhead, error) {
	rows, _ := db.Query(ctx, numbersAheadSQL)
	ahead, err := pgx.CollectRows(rows, pgx.RowToStructByPos[NumberAhead])
	if err != nil {
		return nil, fmt.Errorf("verify: compare the highest numbers with the sequences: %w", err)
	}
	return ahead, nil
}
