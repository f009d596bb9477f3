package verify

const keyOnceSQL = `
SELECT r.tenant_id, r.idempotency_key, count(*) AS requests
FROM reservation_requests AS r
WHERE r.idempotency_key IS NOT NULL
GROUP BY r.tenant_id, r.idempotency_key
HAVING count(*) > 1`

const keyOneCallSQL = `
SELECT r.tenant_id, r.idempotency_key, r.request_id, k.status_code
FROM reservation_requests AS r
JOIN idempotency_keys AS k USING (tenant_id, idempotency_key)`

var keyChecks = []check{
	{"key_one_request", "An idempotency key of a tenant has one request.", keyOnceSQL},
	{"key_one_call", "An idempotency key belongs to a request or to a call that finishes at once, never to both.", keyOneCallSQL},
}
