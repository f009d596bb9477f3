// Package lines splits the output of a process into lines. It does not keep or
// interpret them.
package lines
