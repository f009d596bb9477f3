package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgdev"
)

// Postgres is a private server that keeps its data while it is down. Its port
// changes with each start; programs connect to it through a Route.
type Postgres struct {
	Log PostgresLog

	dir  string
	wire *Wire

	mu     sync.Mutex
	server *pgdev.Server // nil while it is down
	url    url.URL       // of Database, at the last start
}

// Database is the name of the first database.
const Database = "holdfast"

const stopTimeout = 30 * time.Second

// StartPostgres makes the cluster in a folder and starts it, with Database and
// the other databases. Its log goes to the writer too, if that is not nil.
func StartPostgres(ctx context.Context, dir string, w *Wire, log io.Writer, others ...string) (*Postgres, error) {
	p := &Postgres{dir: dir, wire: w}
	p.Log.To = log
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, p.server.URL("postgres"))
	if err != nil {
		return nil, errors.Join(err, p.Stop(syscall.SIGQUIT))
	}
	for _, name := range append(others, Database) {
		if _, err = conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()); err != nil {
			err = fmt.Errorf("make the database %s: %w", name, err)
			break
		}
	}
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return nil, errors.Join(err, p.Stop(syscall.SIGQUIT))
	}
	return p, nil
}

// Start starts the server again.
func (p *Postgres) Start(ctx context.Context) error {
	settings := map[string]string{
		"log_line_prefix": LogPrefix, "max_connections": "300",
		// The log shows the statement of each error. Frequent checkpoints keep
		// recovery short.
		"log_min_error_statement": "error", "checkpoint_timeout": "1min",
	}
	if runtime.GOOS == "linux" {
		settings["recovery_init_sync_method"] = "syncfs" // else recovery begins by syncing a thousand files one by one
	}
	server, err := pgdev.Start(ctx, pgdev.Options{Dir: filepath.Join(p.dir, "postgres"), Log: &p.Log, Settings: settings})
	if err != nil {
		return fmt.Errorf("start Postgres: %w", err)
	}
	u, err := url.Parse(server.URL(Database))
	if err != nil {
		return errors.Join(err, server.Stop())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server, p.url = server, *u
	p.wire.SetUpstream(u.Host)
	return nil
}

// Stop ends the server by a signal: SIGINT ends its sessions and writes a
// checkpoint, SIGQUIT ends it at once.
func (p *Postgres) Stop(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil {
		return nil
	}
	if err := syscall.Kill(p.server.PID(), signal); err != nil {
		return fmt.Errorf("stop Postgres: %w", err)
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.server.Done():
	case <-timer.C:
	}
	err := p.server.Stop()
	p.server = nil
	return err
}

// Close ends the server and removes its data.
func (p *Postgres) Close() error {
	return errors.Join(p.Stop(syscall.SIGQUIT), os.RemoveAll(p.dir))
}

// URL is a database's address through a route.
func (p *Postgres) URL(route *Route, database string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.url
	u.Host, u.Path = route.Address(), "/"+database
	return u.String()
}

// KillProcess ends a process of the server by SIGKILL, as the kernel does when
// memory runs out. It may have ended already.
func (p *Postgres) KillProcess(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d of Postgres: %w", pid, err)
	}
	return nil
}
