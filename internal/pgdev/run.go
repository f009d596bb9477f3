package pgdev

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// run runs a short program, and ends it if ctx ends first. An error contains
// the program's output.
func run(ctx context.Context, cmd *exec.Cmd) error {
	out := newTail(nil)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	endWithParent(cmd.SysProcAttr, syscall.SIGKILL)
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, cmp.Or(context.Cause(ctx), err), out.reason())
	}
	return nil
}

// tail keeps the end of a program's output, and passes everything on.
type tail struct {
	mu   sync.Mutex
	kept []byte
	next io.Writer
}

const tailMax = 16 << 10

func newTail(next io.Writer) *tail {
	if next == nil {
		next = io.Discard
	}
	return &tail{next: next}
}

// Write never fails, so that a full disk under the caller's log does not stop
// the server.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailMax; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	_, _ = t.next.Write(p)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// reason returns the end of the program's output on one line: from its last
// FATAL or error line on, else its last line.
func (t *tail) reason() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	from := len(lines) - 1
	for i, line := range slices.Backward(lines) {
		if strings.Contains(line, "FATAL:") || strings.Contains(line, " error: ") {
			from = i
			break
		}
	}
	words := strings.Join(strings.Fields(strings.Join(lines[from:], " ")), " ")
	if words == "" {
		return "it wrote nothing"
	}
	return words
}

// beginning returns the first few lines of a short output on one line.
func (t *tail) beginning() string {
	const most = 300
	words := strings.Join(strings.Fields(t.String()), " ")
	if len(words) > most {
		words = strings.ToValidUTF8(words[:most], "") + "…"
	}
	return words
}
