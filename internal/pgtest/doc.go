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
// dropped by the next one.
//
// A private server has its data in memory where there is room (/dev/shm),
// because the 300 files of each clone cost the file system of a disk ten times
// the time: ext4 searches long for inodes when many files were just removed.
// The settings are those of production (fsync on), because the programs refuse
// another server. A test that kills Postgres proves as much in memory as on a
// disk, since what a process wrote outlives it on both.
//
// [Until] polls a condition with a pause and a deadline.
//
// All functions are safe for parallel tests and for parallel test processes.
// The goroutines of the server and its connection live until the process ends:
// a leak check must ignore the goroutines that New started, as
// goleak.IgnoreCurrent does.
package pgtest
