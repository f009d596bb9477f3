package verify

// A committed checkout has committed all of its holds, one that has not ended
// holds them, and one that was compensated or failed holds and has committed
// none; a failed one may have lost some to other endings. Reservations that
// ended long ago may be pruned.
const checkoutOwnsSQL = `
WITH owned AS MATERIALIZED (
    SELECT r.tenant_id, r.checkout_id, count(*) AS holds,
           count(*) FILTER (WHERE r.status = 'held') AS held,
           count(*) FILTER (WHERE r.status = 'committed') AS committed,
           sum(r.quantity) AS units, max(r.ended_at) AS last_ended_at
    FROM reservations AS r
    WHERE r.checkout_id IS NOT NULL
    GROUP BY r.tenant_id, r.checkout_id
)
SELECT tenant_id, checkout_id, c.status, c.alert, c.holds AS holds_recorded, c.units AS units_recorded,
       owned.holds, owned.held, owned.committed, owned.units
FROM checkouts AS c
FULL JOIN owned USING (tenant_id, checkout_id)
WHERE CASE
    WHEN c.status IS NULL THEN owned.held > 0 OR owned.last_ended_at >= @since::timestamptz + @margin::interval
    WHEN c.ended_at < @since THEN owned.held > 0
    WHEN c.status = 'committed' THEN owned.committed IS DISTINCT FROM c.holds OR owned.units <> c.units
    WHEN c.ended_at IS NOT NULL THEN owned.held > 0 OR (owned.committed > 0 AND c.alert IS DISTINCT FROM 'stock_lost')
    WHEN c.status = 'finalizing' THEN owned.held IS DISTINCT FROM c.holds AND c.updated_at < least(@now::timestamptz - interval '1 hour', @worked::timestamptz)
    ELSE owned.holds IS DISTINCT FROM c.holds OR owned.units <> c.units
END`

// Recovery ends a checkout at its deadline, which is at most a day ahead, and
// commits one that is paid as soon as it can. An hour is far more than it needs,
// unless the service did not run; see @worked.
// Before its deadline an unpaid checkout may wait for its turn.
const checkoutEndsSQL = `
SELECT c.tenant_id, c.checkout_id, c.status, c.created_at, c.deadline, c.next_attempt_at, c.attempt
FROM checkouts AS c
WHERE c.ended_at IS NULL
  AND (c.deadline < least(@now::timestamptz - interval '1 hour', @worked::timestamptz)
       OR c.deadline > @latest::timestamptz + interval '25 hours'
       OR (c.status = 'finalizing' AND c.next_attempt_at < least(@now::timestamptz - interval '1 hour', @worked::timestamptz))
       OR c.next_attempt_at > greatest(c.deadline, @latest::timestamptz) + interval '1 hour')`

const checkoutAlertedSQL = `
SELECT tenant_id, checkout_id, c.status, c.alert, c.ended_at, record.actions, record.state
FROM checkouts AS c
LEFT JOIN (
    SELECT a.tenant_id, a.target_id AS checkout_id, array_agg(a.action ORDER BY a.audit_id) FILTER (WHERE a.action <> 'checkout.extended') AS actions,
           (array_agg(a.after ORDER BY a.audit_id DESC))[1] AS state, min(a.created_at) FILTER (WHERE a.action = 'checkout.begun') AS begun_at,
           max(a.created_at) FILTER (WHERE a.action IN ('checkout.committed', 'checkout.compensated', 'checkout.failed')) AS ended_at
    FROM audit_log AS a
    WHERE a.action LIKE 'checkout.%'
    GROUP BY a.tenant_id, a.target_id
) AS record USING (tenant_id, checkout_id)
WHERE c.created_at >= @since
  AND (c.status = 'failed' AND c.alert IS NULL
       OR record.actions IS DISTINCT FROM ARRAY['checkout.begun']
           || CASE WHEN c.status IN ('finalizing', 'committed', 'failed') THEN ARRAY['checkout.paid'] ELSE '{}' END
           || CASE WHEN c.ended_at IS NOT NULL THEN ARRAY['checkout.' || c.status] ELSE '{}' END
           || CASE WHEN c.alert IS NOT NULL THEN ARRAY['checkout.alert'] ELSE '{}' END
       OR (record.state->>'status', record.state->>'reason', record.state->>'alert', record.state->>'cart_id',
           record.state->>'payment_reference', (record.state->>'holds')::bigint, (record.state->>'units')::bigint)
          IS DISTINCT FROM (c.status, c.reason, c.alert, c.cart_id, c.payment_reference, c.holds::bigint, c.units)
       OR (record.state->>'deadline')::timestamptz
          NOT BETWEEN c.deadline - interval '2 microseconds' AND c.deadline + interval '2 microseconds'
       OR c.created_at NOT BETWEEN record.begun_at - @margin::interval AND record.begun_at + @margin::interval
       OR c.ended_at NOT BETWEEN record.ended_at - @margin::interval AND record.ended_at + @margin::interval)`

var checkoutChecks = []tableCheck{
	{name: "checkout_owns_holds", meaning: "A committed checkout committed all of its holds, an unfinished one holds them, any other committed none, and none is gone before its holds.", sql: checkoutOwnsSQL},
	{name: "checkout_ends", meaning: "A checkout's deadline is at most a day ahead, it ends within an hour of it, and its next attempt is due by then.", sql: checkoutEndsSQL, changed: true},
	{name: "checkout_recorded", meaning: "Every transition and every alert of a checkout has one audit row, the last of which agrees with it, and a failed checkout has an alert.", sql: checkoutAlertedSQL},
}
