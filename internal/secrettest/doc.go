// Package secrettest finds leaked secrets, for tests: in the output of a
// program, and in every text that formatting, marshalling or reflection makes
// of a value.
package secrettest
