package stage

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawn starts a program that the kernel kills when this process ends. The
// kernel does so when the thread that started the program ends, and Go may end
// a thread unless it is locked.
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
