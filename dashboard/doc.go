// Package dashboard is the operator's page: its files, and the state that it
// shows.
//
// The page is static and contains nothing of any tenant. It calls the HTTP API
// with the API key that the operator enters, as every other client does. So it
// needs no session and no cookie, and each action that it offers is an ordinary
// call, authorised and recorded under that key.
//
// [Overview] combines what other packages read. It has no SQL. It runs once per
// second while an operator watches, so each of its reads is bounded.
//
// This package does not import httpapi and is not imported by it. The programs
// connect the two.
package dashboard
