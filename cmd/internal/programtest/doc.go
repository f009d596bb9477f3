// Package programtest runs a program's run inside a test, and its main as a process of its own, and looks at what it
// prints.
//
// A process is the test's own binary, started again: [Main] in TestMain makes it the program. So it is built once, as
// the test is built.
package programtest
