// Package invalid describes what is wrong with input, for the InvalidError
// types of the packages above it.
package invalid
