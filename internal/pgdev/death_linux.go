package pgdev

import "syscall"

// dieWithUs has the kernel send the signal to the program when the thread that started it ends. [spawn] starts every
// program on a thread that lasts as long as the process.
//
// For a postmaster the signal is SIGQUIT, an immediate shutdown: it ends within moments, needs nobody to wait for a
// checkpoint, and what was committed is recovered from the log at the next start.
func dieWithUs(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
