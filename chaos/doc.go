// Command chaos runs Holdfast's programs in a storm of faults and holds what they did against what they promise.
//
// It builds the programs, starts a private Postgres, two api and two worker processes with a proxy between them and
// Postgres, has shops and buyers call them, and breaks them by a plan that a seed determines. Meanwhile and afterwards it
// checks the promises from outside: by its own record of what was answered, by SQL, and by the logs. See docs/chaos.md.
//
// It exits with 0 only if nothing was violated, with 1 if something was or the storm could not be run, and with 2 for a bad
// command line.
package main
