//go:build !linux

package pgdev

// memoryParent is empty, because this system has no usual folder in memory.
const memoryParent = ""

func hasMemory(string) bool { return false }
