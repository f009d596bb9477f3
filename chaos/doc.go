// Command chaos runs Holdfast's programs while it injects faults (a storm), and
// checks the promises.
//
// It builds the programs and starts a private Postgres, and two api and two
// worker processes with a proxy between them and Postgres. Shops and buyers
// call the programs, and a plan of faults that a seed determines is carried
// out. Meanwhile and afterwards it checks the promises from outside: by its own
// record of the answers, by SQL, and by the logs. See docs/chaos.md.
//
// It exits with 0 only if no promise was broken, with 1 if one was broken or
// the storm could not be run, and with 2 for an invalid command line.
package main
