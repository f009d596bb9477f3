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

// A call stores its response in the transaction that reserves its key.
const keyAnsweredSQL = `
SELECT k.tenant_id, k.idempotency_key, k.status_code, k.created_at
FROM idempotency_keys AS k
WHERE k.status_code IS NULL OR octet_length(k.fingerprint) <> 32`

var keyChecks = []tableCheck{
	{name: "key_one_request", meaning: "An idempotency key of a tenant has one request.", sql: keyOnceSQL},
	{name: "key_one_call", meaning: "An idempotency key belongs to a request or to a call that finishes at once, never to both.", sql: keyOneCallSQL},
	{name: "key_answered", meaning: "Every stored idempotency key has the response of its call.", sql: keyAnsweredSQL},
}
