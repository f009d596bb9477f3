package stage

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Program is one of Holdfast's programs, which can be started any number of
// times. It is safe for concurrent use.
type Program struct {
	// Name is the program's name in the plan.
	Name string
	// Address is where it serves: host and port.
	Address string
	// StopWithin bounds the time that it takes to stop; 0 means 15 s.
	StopWithin time.Duration
	Log        Log

	path string // guarded by mu
	env  []string
	// exited is called with an unexpected exit.
	exited func(Exit)

	mu     sync.Mutex
	run    *run // nil: it was stopped on purpose
	closed bool
	down   []span
	starts int
}

// Exit is the end of a process.
type Exit struct {
	Program string
	Code    int // -1: by a signal
	State   string
	At      time.Time
	Lived   time.Duration
	Last    []string // the last lines of its log
}

// String is the exit with the end of the log.
func (e Exit) String() string {
	return fmt.Sprintf("%s exited unexpectedly after %.1fs (%s); its last lines:\n      %s",
		e.Program, e.Lived.Seconds(), e.State, strings.Join(e.Last, "\n      "))
}

// run is one process of a program.
type run struct {
	cmd   *exec.Cmd
	began time.Time
	asked bool // whether it was asked to end
	ended chan struct{}
}

// span is a time in which a program could not answer: dead, stopping or frozen.
type span struct{ from, to time.Time } // to is zero while it lasts

// NewProgram makes a program that is not started.
func NewProgram(name, address, path string, env []string, exited func(Exit)) *Program {
	return &Program{Name: name, Address: address, StopWithin: 15 * time.Second, path: path, env: env, exited: exited}
}

// Use sets the binary that later starts run.
func (p *Program) Use(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.path = path
}

// Start starts it.
func (p *Program) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start()
}

func (p *Program) start() error {
	if p.closed || p.run != nil {
		return nil
	}
	r := &run{cmd: exec.Command(p.path), began: time.Now(), ended: make(chan struct{})} //nolint:noctx // Close ends it
	r.cmd.Env = p.env
	r.cmd.Stderr = &p.Log
	r.cmd.Stdout = &p.Log
	r.cmd.WaitDelay = time.Second
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C at the terminal reaches only this process
	if err := spawn(r.cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.run = r
	p.starts++
	p.up()
	go p.wait(r)
	return nil
}

// restartAfter is the pause before a program that ended is started again.
const restartAfter = time.Second

// wait waits for the end of a run. An unexpected exit is reported, and the
// program started again.
func (p *Program) wait(r *run) {
	_ = r.cmd.Wait() // its state has the exit code
	p.mu.Lock()
	asked := r.asked
	if p.run == r && !asked {
		p.run = nil
		p.lost()
	}
	p.mu.Unlock()
	close(r.ended)
	if asked {
		return
	}
	p.exited(Exit{
		Program: p.Name, Code: r.cmd.ProcessState.ExitCode(), State: r.cmd.ProcessState.String(), At: time.Now(),
		Lived: time.Since(r.began), Last: p.Log.Last(),
	})
	time.AfterFunc(restartAfter, func() {
		if err := p.Start(); err != nil {
			p.exited(Exit{Program: p.Name, Code: -1, State: err.Error(), At: time.Now()})
		}
	})
}

// lost records that the program does not answer from now on. up records that it
// answers again. The caller has locked p.mu.
func (p *Program) lost() {
	if n := len(p.down); n == 0 || !p.down[n-1].to.IsZero() {
		p.down = append(p.down, span{from: time.Now()})
	}
}

func (p *Program) up() {
	if n := len(p.down); n > 0 && p.down[n-1].to.IsZero() {
		p.down[n-1].to = time.Now()
	}
}

// end sends a signal to the current run, and returns the run, or nil if the
// program is down.
func (p *Program) end(signal syscall.Signal) (*run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.run
	if r == nil {
		return nil, nil
	}
	r.asked = true
	p.run = nil
	p.lost()
	if err := r.cmd.Process.Signal(signal); err != nil {
		return r, fmt.Errorf("send %s to %s: %w", signal, p.Name, err)
	}
	return r, nil
}

// Kill ends the program by SIGKILL. It stays down until Start.
func (p *Program) Kill() error {
	r, err := p.end(syscall.SIGKILL)
	if r != nil && err == nil {
		<-r.ended
	}
	return err
}

// Stopped describes how a program ended after Stop.
type Stopped struct {
	Code int
	Took time.Duration
	Late bool // it did not end in time, and was killed
}

// Stop ends the program by SIGTERM. It stays down until Start.
func (p *Program) Stop() (s Stopped, err error) {
	began := time.Now()
	r, err := p.end(syscall.SIGTERM)
	if r == nil || err != nil {
		return s, err
	}
	timer := time.NewTimer(p.StopWithin)
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
		s.Late = true
		err = r.cmd.Process.Kill()
		<-r.ended
	}
	s.Took, s.Code = time.Since(began), r.cmd.ProcessState.ExitCode()
	return s, err
}

// Freeze stops the program by SIGSTOP until Thaw. It returns false if the
// program is down.
func (p *Program) Freeze() (bool, error) { return p.signal(syscall.SIGSTOP, p.lost) }

// Thaw continues the program by SIGCONT. It returns false if the program is
// down.
func (p *Program) Thaw() (bool, error) { return p.signal(syscall.SIGCONT, p.up) }

func (p *Program) signal(signal syscall.Signal, note func()) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return false, nil
	}
	if err := p.run.cmd.Process.Signal(signal); err != nil {
		return false, fmt.Errorf("send %s to %s: %w", signal, p.Name, err)
	}
	note()
	return true, nil
}

// Close ends the program for good, whatever its state.
func (p *Program) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.Kill()
}

// Starts returns the number of times that it was started.
func (p *Program) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// Down returns for how long, between the two moments, the program could not
// answer because it was dead, stopping or frozen.
func (p *Program) Down(from, to time.Time) (sum time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.down {
		begin, end := s.from, s.to
		if end.IsZero() || end.After(to) {
			end = to
		}
		if begin.Before(from) {
			begin = from
		}
		if end.After(begin) {
			sum += end.Sub(begin)
		}
	}
	return sum
}

// ErrNoPort means that no port could be found for a program.
var ErrNoPort = errors.New("no free port between 20000 and 30000")
