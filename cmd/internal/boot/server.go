package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

const (
	headerTimeout = 5 * time.Second
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

// newServer bounds what a caller can make a connection cost. How long a call may take is for its handler to say: some
// wait for a request to finish, and some send files.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerMax,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// serve answers on l until ctx ends, then stops accepting, lets what is in flight be answered within the given time,
// and closes what is left. beforeStop runs first.
func serve(ctx context.Context, server *http.Server, l net.Listener, within time.Duration, beforeStop func()) error {
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
	if err != nil {
		err = errors.Join(fmt.Errorf("some calls were not answered within %s of the stop: %w", within, err), server.Close())
	}
	if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
