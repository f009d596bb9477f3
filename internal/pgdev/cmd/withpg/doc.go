// Command withpg runs a program with a private Postgres, whose address is in
// the program's HOLDFAST_TEST_DATABASE_URL:
//
//	withpg -- go test ./...
//
// It writes no output unless it fails to start, passes signals on, and exits
// with the program's code (128 + n if signal n ended it). The server is stopped
// and its data removed before that. If HOLDFAST_TEST_DATABASE_URL or
// DATABASE_URL already names a server, that server is used instead. It is an
// error to set PG_MAJOR too, which asks for a private server of that version.
//
// It exits with 125 if withpg itself fails, and with 127 if there is no
// Postgres (of that version) and none can be downloaded.
//
// go run replaces every exit code but 0 by 1 and adds a line; build the command
// where that matters.
package main
