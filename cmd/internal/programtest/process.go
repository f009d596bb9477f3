package programtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const asProgram = "HOLDFAST_TEST_AS_PROGRAM"

// Main is called by TestMain. It runs the program if [StartProcess] started the
// process, otherwise the tests.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	_ = os.Unsetenv(asProgram) // its child processes are not programs
	main()
}

// Process is a program in a separate process.
type Process struct {
	Stdout, Stderr *Output

	t     testing.TB
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
}

// StartProcess starts the test's binary as the program, in its own process
// group. Its environment is env, PATH, a state folder of its own, and the
// variables that select the binaries of a private Postgres. The end of the test
// kills the program if it still runs.
func StartProcess(t testing.TB, env map[string]string, args ...string) *Process {
	t.Helper()
	env[asProgram] = "yes"
	return StartBinary(t, os.Args[0], env, args...)
}

// StartBinary is StartProcess for a program that the test built.
func StartBinary(t testing.TB, path string, env map[string]string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.CommandContext(context.Background(), path, args...), ended: make(chan struct{}), Stdout: newOutput(), Stderr: newOutput()}
	p.cmd.Stdout, p.cmd.Stderr = p.Stdout, p.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = time.Second // a grandchild may keep the pipes
	p.cmd.Env = []string{"TMPDIR=" + os.TempDir(), "XDG_STATE_HOME=" + t.TempDir()}
	for _, name := range []string{"PATH", "HOME", "PG_BIN", "PG_MAJOR"} {
		p.cmd.Env = append(p.cmd.Env, name+"="+os.Getenv(name))
	}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		p.Stdout.close()
		p.Stderr.close()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // end it if it still runs
		<-p.ended
	})
	return p
}

// PID returns the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends the process a signal.
func (p *Process) Signal(signal syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Fatalf("send %s: %v", signal, err)
	}
}

// Wait waits for the process to end and returns its exit code, -1 if a signal
// ended it.
func (p *Process) Wait() int {
	p.t.Helper()
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		p.t.Fatalf("the process did not end within %s; it logged:\n%s", endTimeout, p.Stderr)
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		p.t.Fatalf("wait for the process: %v", p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}
