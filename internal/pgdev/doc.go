// Package pgdev runs a private Postgres: for the demo, the tests and the fault harness.
//
// It finds the server's programs, makes a cluster, starts it on a free port of 127.0.0.1 and on a Unix socket, and
// stops it again. A server that already runs is never adopted; a caller who wants one passes its URL around this
// package.
//
// # Where the programs come from
//
// The first of: the folder in PG_BIN; initdb on PATH, links resolved; pg_config --bindir if it holds initdb; the folders
// where Debian, Red Hat, Homebrew and Postgres.app keep their versions, newest first; and, where npm is installed, a
// pinned and checksummed package of Postgres binaries, kept in the user's cache folder. Otherwise [Start] fails with one
// sentence that names the command to install Postgres.
//
// PG_MAJOR, if set, is the major version they must be of: a place with another one is passed over, and PG_BIN with another
// one is an error. Packages are pinned for 14 to 18.
//
// # Invariants
//
//   - A server never outlives its process, however that ends: the kernel signals it on Linux, and everywhere a small
//     shell that holds the other end of a pipe stops it and removes its temporary folder.
//   - fsync, full_page_writes and synchronous_commit are on, as the programs demand of every database.
//   - Only those who know the random password get in. As root, the server runs as the user postgres, else nobody,
//     because Postgres refuses to run as root; its data lies where that user can reach it.
//   - One server a data folder; two processes that name the same one do not share it.
package pgdev
