// Package progress draws on a terminal how far a command has come.
//
// It never writes to a file or a pipe, and never to standard output, which has
// the command's result.
package progress
