// Package dashboard is the files of the operator's page.
//
// The page is static and contains nothing of any tenant. It calls the HTTP API
// with the API key that the operator enters, as every other client does. So it
// needs no session and no cookie, and each action that it offers is an ordinary
// call, authorised and recorded under that key.
//
// This package does not import httpapi and is not imported by it. The programs
// connect the two.
package dashboard
