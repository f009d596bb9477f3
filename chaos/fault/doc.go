// Package fault says what a storm breaks and when: the kinds of fault, a plan of them that a seed determines, and the
// timeline of those that took place.
//
// It breaks nothing itself, and reads no clock but the one it is given.
package fault
