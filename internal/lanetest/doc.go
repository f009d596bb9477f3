// Package lanetest is the suite that both lanes pass: what a drain promises whatever its order. It is imported by tests
// only.
package lanetest
