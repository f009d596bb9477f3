//go:build !linux

package stage

import "os/exec"

// spawn starts a program. If this process is killed, the program continues.
func spawn(cmd *exec.Cmd) error { return cmd.Start() }
