package verify

// A committed checkout has committed all of its holds, one that has not ended
// holds them, and one that was compensated or failed holds and has committed
// none; a failed one may have lost some to other endings. Reservations that
// ended long ago may be pruned.
const checkoutOwnsSQL = `
WITH owned AS MATERIALIZED (
    SELECT r.tenant_id, r.checkout_id, count(*) AS holds, min(r.ended_at) AS ended_at,
           count(*) FILTER (WHERE r.status = 'held') AS held,
           count(*) FILTER (WHERE r.status = 'committed') AS committed
    FROM reservations AS r
    WHERE r.checkout_id IS NOT NULL
    GROUP BY r.tenant_id, r.checkout_id
)
SELECT tenant_id, checkout_id, c.status, c.alert, c.holds AS holds_recorded, owned.holds, owned.held, owned.committed
FROM checkouts AS c
FULL JOIN owned USING (tenant_id, checkout_id)
WHERE CASE
    WHEN c.status IS NULL THEN owned.held > 0
    WHEN c.ended_at < @since THEN owned.held > 0
    WHEN c.status = 'committed' THEN owned.committed IS DISTINCT FROM c.holds
    WHEN c.ended_at IS NOT NULL THEN owned.held > 0 OR (owned.committed > 0 AND c.alert IS DISTINCT FROM 'stock_lost')
    WHEN c.status = 'finalizing' THEN owned.held IS DISTINCT FROM c.holds AND c.updated_at < @now::timestamptz - interval '1 hour'
    ELSE owned.holds IS DISTINCT FROM c.holds
END`

// Recovery ends a checkout at its deadline, and commits one that is paid. An
// hour is far more than it needs.
const checkoutEndsSQL = `
SELECT c.tenant_id, c.checkout_id, c.status, c.deadline, c.attempt
FROM checkouts AS c
WHERE c.ended_at IS NULL AND c.deadline < @now::timestamptz - interval '1 hour'`

const checkoutAlertedSQL = `
SELECT tenant_id, checkout_id, c.status, c.alert, record.actions
FROM checkouts AS c
LEFT JOIN (
    SELECT a.tenant_id, a.target_id AS checkout_id, array_agg(a.action ORDER BY a.audit_id) AS actions
    FROM audit_log AS a
    WHERE a.action LIKE 'checkout.%' AND a.action <> 'checkout.extended'
    GROUP BY a.tenant_id, a.target_id
) AS record USING (tenant_id, checkout_id)
WHERE c.created_at >= @since
  AND (c.status = 'failed' AND c.alert IS NULL
       OR record.actions IS DISTINCT FROM ARRAY['checkout.begun']
           || CASE WHEN c.status IN ('finalizing', 'committed', 'failed') THEN ARRAY['checkout.paid'] ELSE '{}' END
           || CASE WHEN c.ended_at IS NOT NULL THEN ARRAY['checkout.' || c.status] ELSE '{}' END
           || CASE WHEN c.alert IS NOT NULL THEN ARRAY['checkout.alert'] ELSE '{}' END)`

var checkoutChecks = []check{
	{"checkout_owns_holds", "A committed checkout committed all of its holds, an unfinished one holds them, and any other committed none.", checkoutOwnsSQL},
	{"checkout_ends", "A checkout ends within an hour of its deadline.", checkoutEndsSQL},
	{"checkout_recorded", "Every transition and every alert of a checkout has one audit row, and a failed checkout has an alert.", checkoutAlertedSQL},
}
