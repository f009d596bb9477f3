package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second // for each of the three signals that stop a server, from gentle to certain
	superuser    = "postgres"
)

// Options of a private server. The zero value is a temporary server with the
// settings of [DefaultSettings].
type Options struct {
	// Dir keeps the data across runs; it is made if missing. Empty: a temporary
	// folder, removed by Stop.
	Dir string
	// InMemory makes the temporary folder in /dev/shm if that has 4 GiB left, so
	// that files that are made and removed by the thousand do not burden a
	// disk's file system. The settings are the same.
	InMemory bool
	// Settings are added to, and override, [DefaultSettings]. port,
	// listen_addresses and unix_socket_directories are chosen by Start and
	// cannot be set.
	Settings map[string]string
	// Log receives the server's log. Nil: the log is dropped, except that the
	// error of a failed start contains its end.
	Log io.Writer

	find finder // how the programs are found; tests leave out some of the ways
}

// Server is a running private Postgres. Its methods are safe for concurrent
// use.
type Server struct {
	cmd      *exec.Cmd
	port     int
	password string
	home     *home
	log      *tail

	done chan struct{} // closed when the postmaster and all its children are gone

	stopOnce sync.Once
	stopErr  error
}

// Start creates the cluster if it does not exist and starts a server on it. It
// returns when the server accepts connections: within 30 seconds, or some
// minutes if Postgres must be downloaded first. ctx bounds the start only; the
// server lasts until Stop or the end of this process. A folder that another
// server uses is an error.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if err := checkSettings(opts.Settings); err != nil {
		return nil, err
	}
	account, err := chooseAccount(opts.Dir)
	if err != nil {
		return nil, err
	}
	find := opts.find
	if find.data, err = dataMajor(opts.Dir); err != nil {
		return nil, err
	}
	programs, err := find.find(ctx, account)
	if err != nil {
		if find.data != 0 {
			err = fmt.Errorf("start on %s: %w", opts.Dir, err)
		}
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errSlow)
	defer cancel()
	h, err := newHome(account, opts)
	if err != nil {
		return nil, err
	}
	s, err := startIn(ctx, h, programs, opts)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return s, nil
}

var errSlow = errors.New("the private Postgres did not start in time")

func startIn(ctx context.Context, h *home, programs programs, opts Options) (*Server, error) {
	password, err := h.makeCluster(ctx, programs)
	if err != nil {
		return nil, err
	}
	settings := mergeSettings(ctx, programs, h, opts.Settings)
	for {
		s := &Server{home: h, password: password, log: newTail(opts.Log), done: make(chan struct{})}
		err := s.launch(ctx, programs, settings)
		if err == nil {
			return s, nil
		}
		if !s.mayRetry(ctx) {
			return nil, err
		}
	}
}

// launch starts the postmaster once and waits until it answers. On an error the
// postmaster is gone.
func (s *Server) launch(ctx context.Context, programs programs, settings map[string]string) (err error) {
	if s.port, err = freePort(); err != nil {
		return err
	}
	s.cmd = programs.command(s.home, "postgres", s.arguments(settings)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.WaitDelay = stopTimeout
	endWithParent(s.cmd.SysProcAttr, syscall.SIGQUIT)
	if err := spawn(s.cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.cmd.Path, err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	s.home.watcher.add(s.cmd.Process.Pid)
	if err := s.waitReady(ctx); err != nil {
		s.end(syscall.SIGQUIT, syscall.SIGKILL)
		return err
	}
	return nil
}

func (s *Server) arguments(settings map[string]string) []string {
	args := []string{"-D", s.home.data}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return append(args,
		"-c", "port="+strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories="+s.home.sockets)
}

// URL is the address of a database of this server over TCP, with the
// superuser's name and password. The database "postgres" always exists.
func (s *Server) URL(database string) string {
	u := s.address(database)
	u.Host = "127.0.0.1:" + strconv.Itoa(s.port)
	u.RawQuery = "sslmode=disable"
	return u.String()
}

// SocketURL is [Server.URL] over the Unix socket, which saves some microseconds
// per round trip.
func (s *Server) SocketURL(database string) string {
	u := s.address(database)
	u.RawQuery = url.Values{"host": {s.home.sockets}, "port": {strconv.Itoa(s.port)}}.Encode()
	return u.String()
}

func (s *Server) address(database string) *url.URL {
	return &url.URL{Scheme: "postgres", User: url.UserPassword(superuser, s.password), Path: "/" + database}
}

// PID is the process id of the postmaster.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Done is closed when the server has ended, by Stop or for another reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop ends the server and removes the temporary folders. A kept data folder
// gets a fast shutdown (open transactions are rolled back, a checkpoint is
// written), then an immediate one. A temporary server is shut down immediately.
// Stop returns when the server has ended; a second call returns the result of
// the first.
func (s *Server) Stop() error {
	s.stopOnce.Do(func() {
		if s.home.kept != "" {
			s.end(syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL)
		} else {
			s.end(syscall.SIGQUIT, syscall.SIGKILL)
		}
		s.stopErr = s.home.close()
	})
	return s.stopErr
}

// end sends one signal after the other until the server has ended.
func (s *Server) end(signals ...syscall.Signal) {
	for _, signal := range signals {
		_ = s.cmd.Process.Signal(signal) // it may have ended already
		timer := time.NewTimer(stopTimeout)
		select {
		case <-s.done:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
	<-s.done
}

// programs is an installation of Postgres.
type programs struct {
	bin       string // the folder that holds initdb and postgres
	libraries string // for the dynamic linker; empty if the programs find their own
}

// command prepares a program of the installation, as the account that owns the
// data, with its own environment.
func (p programs) command(h *home, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = h.dir
	cmd.Env = []string{"HOME=" + h.dir, "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", "TMPDIR=" + os.TempDir()}
	if p.libraries != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+p.libraries, "DYLD_LIBRARY_PATH="+p.libraries)
	}
	cmd.SysProcAttr = h.account.attributes()
	return cmd
}
