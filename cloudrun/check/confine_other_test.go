//go:build !linux

package main

// confinements are none where programs need files of the system to run at all.
func confinements(string) []confinement { return nil }
