package programtest

import (
	"bytes"
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/cmd/internal/boot"
)

// Run is a program's run.
type Run = func(context.Context, boot.Process) error

// endTimeout is how long a program may take to end, or to print a line. It is far
// longer than the program's own limits, so that a busy machine decides nothing.
const endTimeout = 5 * time.Minute

// Once runs a program to its end and returns what it printed.
func Once(t testing.TB, run Run, env map[string]string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	p := Start(t, run, env, args...)
	err = p.Wait()
	return p.Stdout.String(), p.Stderr.String(), err
}

// Inside is a program that runs in the test's process.
type Inside struct {
	Stdout, Stderr *Output

	t     testing.TB
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// Start starts a program. The end of the test stops it if the test does not.
func Start(t testing.TB, run Run, env map[string]string, args ...string) *Inside {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	own := map[string]string{"XDG_STATE_HOME": t.TempDir()} // not that of the user who runs the test
	maps.Copy(own, env)
	p := &Inside{t: t, stop: stop, ended: make(chan struct{}), Stdout: newOutput(), Stderr: newOutput()}
	process := boot.Process{
		Env: envconfig.MapLookuper(own), Args: args, Stdin: strings.NewReader(""), Stdout: p.Stdout, Stderr: p.Stderr,
	}
	go func() {
		p.err = run(ctx, process)
		p.Stdout.close()
		p.Stderr.close()
		close(p.ended)
	}()
	t.Cleanup(func() { _ = p.Stop() }) // the test has checked the error or ignores it
	return p
}

// Stop makes the program stop, as a signal does, and returns its error.
func (p *Inside) Stop() error {
	p.t.Helper()
	p.stop()
	return p.Wait()
}

// Wait waits for the program to end and returns its error.
func (p *Inside) Wait() error {
	p.t.Helper()
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-timer.C:
		p.t.Fatalf("the program did not end within %s; it logged:\n%s", endTimeout, p.Stderr)
		return nil
	}
}

// Output is the program's output so far. It is safe for concurrent use.
type Output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	ended   bool
	changed chan struct{} // closed and replaced at each change
}

func newOutput() *Output { return &Output{changed: make(chan struct{})} }

// Write appends to the output.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notify()
	return o.text.Write(p)
}

func (o *Output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.notify()
}

func (o *Output) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Line waits for the first complete line that contains the text.
func (o *Output) Line(t testing.TB, with string) string {
	t.Helper()
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	for {
		o.mu.Lock()
		text, ended, changed := o.text.String(), o.ended, o.changed
		o.mu.Unlock()
		for line := range strings.Lines(text) {
			if strings.Contains(line, with) && strings.HasSuffix(line, "\n") {
				return strings.TrimSuffix(line, "\n")
			}
		}
		if ended {
			t.Fatalf("the program ended without a line with %q; it printed:\n%s", with, text)
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("no line with %q within %s; the program printed:\n%s", with, endTimeout, text)
		}
	}
}
