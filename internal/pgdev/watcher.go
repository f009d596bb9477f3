package pgdev

import (
	"fmt"
	"io"
	"os/exec"
)

// watchScript outlives this process by a moment. It reads ids of postmasters,
// of which the last one counts, until the pipe ends, which happens when this
// process ends. If that id is still the one in the data folder, it shuts the
// postmaster down at once and waits until it has ended. Then it removes the
// temporary folder.
const watchScript = `
dir=$1 file=$2 pid=
while read -r line; do pid=$line; done
runs() {
	[ -n "$pid" ] && read -r now <"$file" && [ "$now" = "$pid" ] && kill -0 "$pid"
} 2>/dev/null
tries=0
while runs && [ $tries -lt 100 ]; do
	[ $tries -eq 0 ] && kill -QUIT "$pid"
	[ $tries -eq 80 ] && kill -KILL "$pid"
	tries=$((tries + 1))
	sleep 0.1
done
rm -rf "$dir"
`

// watcher is the small shell that cleans up after this process.
type watcher struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

func startWatcher(dir, pidFile string) (*watcher, error) {
	cmd := exec.Command("/bin/sh", "-c", watchScript, "sh", dir, pidFile)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.SysProcAttr = ownSession()
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	return &watcher{cmd: cmd, pipe: pipe}, nil
}

// add passes the watcher a new postmaster, which it ends if this process dies. A killed watcher is not an error.
func (w *watcher) add(pid int) { _, _ = fmt.Fprintln(w.pipe, pid) }

// dismiss ends the watcher and waits for it. Before the call, the server must
// have ended and the temporary folder must be removed.
func (w *watcher) dismiss() {
	_ = w.pipe.Close()
	_ = w.cmd.Wait()
}
