package pgdev

import "syscall"

// endWithParent makes the kernel send the signal to the program when the thread
// that started it ends. [spawn] starts every program on a thread that lasts as
// long as the process.
//
// For a postmaster the signal is SIGQUIT, an immediate shutdown. It ends within
// moments, without a checkpoint. The next start recovers what was committed
// from the log.
func endWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
