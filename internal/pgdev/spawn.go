package pgdev

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawn starts a program from a goroutine that is locked to its thread for the
// life of the process. Linux ties the death signal of a program to the thread
// that started it, and Go may end any thread that is not locked.
func spawn(cmd *exec.Cmd) error {
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	return <-started
}

var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range work { // never closed
			start()
		}
	}()
	return work
})
