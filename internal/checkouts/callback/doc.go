// Package callback asks a shop's payment service whether a checkout is paid. It
// is the checkouts.Validator of the programs.
//
// It owns no table and starts nothing: the recovery of checkouts calls
// [Validator.Validate] outside any transaction, and stores what it returns.
//
// # The call
//
// One POST to the checkout's callback URL, with a JSON body and the headers of
// Standard Webhooks (https://www.standardwebhooks.com, version 1): webhook-id,
// webhook-timestamp and webhook-signature. webhook-id is the id of the
// checkout, the same in every attempt. The service uses it as its idempotency
// key: it charges once per webhook-id, and gives the same answer to each call.
// Each tenant has its own secret, see [Secret.ForTenant].
//
// # The answer
//
//   - 2xx with {"result":"paid"}, {"result":"failed"} or {"result":"pending"}:
//     that result.
//   - 202 with any body, and 2xx without a body: pending.
//   - Everything else is an error, and the call is repeated until the deadline
//     of the checkout: another body, a redirect, a 4xx (410 too), a 5xx, no
//     answer in time. A status code never means failed: a wrong path, an
//     expired certificate or a lost route of the shop must not cancel paid
//     orders.
//
// # Addresses
//
// The URL comes from a tenant, and the call is made from inside the operator's
// network. Unless [Config.AllowPrivate] is set, the scheme must be https, and
// every connection is checked when it is dialled, after the host was resolved:
// only addresses of the public internet are allowed. A host that resolves to a
// public address when the checkout begins, and to a private one later, is
// refused then. Redirects are not followed, no proxy is used, and connections
// are not reused.
package callback
