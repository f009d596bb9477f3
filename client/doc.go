// Package client calls the HTTP API of Holdfast.
//
//	c, err := client.New(client.Config{URLs: []string{"http://localhost:8080"}, Key: key})
//	request, err := c.Add(ctx, "cart-17", "shirt-m", 2, nil)
//	request, err = c.Wait(ctx, request.RequestID, 30*time.Second) // done, or failed with a reason
//	sold, err := c.Checkout(ctx, "cart-17", nil)
//
// A method returns once the service has answered. A call without an answer, and
// a call that the service could not handle now (429, 500, 502, 503, 504), is sent
// again, three times unless [Config].MaxRetries is another number, after the time
// that Retry-After names and up to a quarter more at random. This has no second
// effect: a call that writes has an idempotency key, that of its [CallOpts] or a
// random one. The client for TypeScript follows the same rules, and
// clients/cases.json and clients/service.json test both.
//
// Any other status from 400 on is an [*Error] with its status and code, which
// docs/http.md lists. That a variant is sold out is not an error: the request
// ends failed, with reason out_of_stock.
//
// The verbs have the names of those of the library's Tenant, and the types, except
// for [Error], are generated from docs/openapi.json. What is null or left out in an
// answer is the zero value, or nil where that differs: a limit, a time, an object.
//
// [Client.Do] makes calls for which there is no method, and [Client.Send] sends
// a call once and returns the response as it is.
//
// The package imports only the standard library, so a program that uses it links
// neither River nor OpenTelemetry.
package client
