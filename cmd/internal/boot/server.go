package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 5 * time.Second // for a body that no handler waits for
	idleTimeout   = 2 * time.Minute // longer than a load balancer keeps a connection, so it is the one to close
	headerMax     = 16 << 10        // bytes; the longest path and the headers we read take under 4,000
)

// listen takes a port, on all interfaces where host is empty; port 0 is any that is free.
func listen(ctx context.Context, host string, port int) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d is taken by another program: choose another one (PORT or --port; 0 for any)", port)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("port %d may not be opened by this user: choose one above 1023", port)
	case err != nil:
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l, nil
}

// newServer bounds what a caller can make a connection cost. A handler whose calls take longer, because they wait for a
// request to finish or receive a file, sets deadlines of its own; for that reason there is no WriteTimeout here.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerMax,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// The server's own answer to OPTIONS * waits for a body.
		DisableGeneralOptionsHandler: true,
	}
}

// serve answers on l until ctx ends, then stops accepting, lets what is in flight be answered within the given time,
// and closes what is left. beforeStop runs first.
//
// The error reports calls that were not answered. A connection whose caller sends no whole request, or does not read the
// answer, is none.
func serve(ctx context.Context, server *http.Server, l net.Listener, within time.Duration, beforeStop func()) error {
	var calls atomic.Int64
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		defer calls.Add(-1)
		handler.ServeHTTP(w, r)
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	beforeStop()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	err := server.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		unanswered := calls.Load()
		err = server.Close()
		if unanswered > 0 {
			err = errors.Join(fmt.Errorf("%d calls were not answered within %s of the stop", unanswered, within), err)
		}
	}
	if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
