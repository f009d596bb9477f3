// Package pgtest gives a test a Postgres database of its own with the newest schema, in one line:
//
//	db := pgtest.New(t)
//
// The server is the one that HOLDFAST_TEST_DATABASE_URL, else DATABASE_URL names (its user must be allowed to create
// databases); without either, a private one is started with the first database of the test process and ends with the
// process. A missing Postgres fails the test; nothing is skipped.
//
// Databases are cloned from a template, which is migrated once a server and schema, whoever comes first, and kept. A
// clone is dropped when its test ends; what a killed process left behind is dropped by the next one. Durability is as
// in production: a test that passes with fsync off proves little about a program that refuses to run so.
//
// Everything is safe for parallel tests and for parallel test processes. The goroutines of the server and its
// connection live as long as the process: a leak check compares with what ran after New, as goleak.IgnoreCurrent does.
package pgtest
