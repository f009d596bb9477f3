// Package programtest runs a program's run inside a test, or its main as a
// separate process, and reads its output.
//
// A process is the test's own binary, started again: with [Main] in TestMain it
// becomes the program. So the program is built once, together with the test.
package programtest
