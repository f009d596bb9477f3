// Package fault describes the faults of a storm: their kinds, a plan that a
// seed determines, and the timeline of those that took place.
//
// It does not carry out faults, and reads no clock except the one it is given.
package fault
