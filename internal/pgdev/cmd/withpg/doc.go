// Command withpg runs a program beside a private Postgres, whose address it finds in HOLDFAST_TEST_DATABASE_URL:
//
//	withpg -- go test ./...
//
// It writes nothing of its own unless it fails to start, passes signals on, and exits as the program does (128 + n if
// signal n ended it). The server is stopped and its data removed before that. A server that the environment already
// names in HOLDFAST_TEST_DATABASE_URL or DATABASE_URL is used instead; with PG_MAJOR, which asks for a private server of that
// version, that is an error.
//
// It exits with 125 if it fails itself, and with 127 if there is no Postgres (of that version) and none can be fetched.
//
// go run replaces every exit code but 0 by 1 and adds a line; build the command where that matters.
package main
