// Package lines splits what a process writes into lines. It keeps no line and reads none.
package lines
