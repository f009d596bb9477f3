package verify

import "github.com/holdfast/holdfast/internal/horizon"

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
