// Package pgtest gives a test its own Postgres database with the newest schema,
// in one line:
//
//	db := pgtest.New(t)
//
// HOLDFAST_TEST_DATABASE_URL names the server, or else DATABASE_URL; its user
// must be allowed to create databases. Without either, a private server is
// started with the first database of the test process and ends with the
// process. Without Postgres the test fails; no test is skipped.
//
// Databases are cloned from a template. The first process that needs the
// template migrates it, once per server and schema, and the template is kept. A
// clone is dropped when its test ends. The clones of a killed process are
// dropped by the next one. Durability is as in production: a test that passes
// with fsync off proves little about a program that refuses such a server.
//
// [Until] polls a condition with a pause and a deadline.
//
// All functions are safe for parallel tests and for parallel test processes.
// The goroutines of the server and its connection live until the process ends:
// a leak check must ignore the goroutines that New started, as
// goleak.IgnoreCurrent does.
package pgtest
