package stage

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawn starts a program that the kernel kills if this process ends, however it ends. The kernel watches the thread that
// started it, and Go ends threads as it pleases unless one is locked.
func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
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
