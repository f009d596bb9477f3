// Package secrettest looks for secrets where none may be, for tests: in whatever a program has told, and in whatever can
// be made of a value without asking it for its secret.
package secrettest
