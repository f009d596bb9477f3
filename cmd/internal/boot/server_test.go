package boot

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// A caller may send a body that no handler reads, or an incomplete request. It
// is answered at once if possible, its connection is closed, and the stop does
// not fail.
func TestStalledConnections(t *testing.T) {
	t.Parallel()
	client, err := holdfast.New(pgtest.New(t), &holdfast.Config{NoIntake: true})
	if err != nil {
		t.Fatal(err)
	}
	program := &Program{
		Log: slog.New(slog.DiscardHandler), Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "up 1\n") }),
	}
	w := &Worker{program: program, cells: []*workerCell{{program: program, client: client}}}
	l, err := listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	server := newServer(httpapi.Bodiless(ctx, w.healthHandler()), w.program.Log)
	server.ReadTimeout = 200 * time.Millisecond
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, server, l, healthStop, func() {}) }()

	dial := func(text string) *bufio.Reader {
		t.Helper()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		return bufio.NewReader(conn)
	}
	const declared = " HTTP/1.1\r\nHost: worker\r\nContent-Length: 100\r\n"
	for call, want := range map[string]int{
		"GET /livez" + declared:                         http.StatusOK,
		"GET /metrics" + declared:                       http.StatusOK,
		"POST /nothing" + declared:                      http.StatusNotFound,
		"OPTIONS *" + declared:                          http.StatusBadRequest,
		"GET /livez" + declared + "Expect: nothing\r\n": http.StatusExpectationFailed,
	} {
		r := dial(call + "\r\n")
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Errorf("%q: %v", call, err)
			continue
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != want || !answer.Close {
			t.Errorf("%q: answered %s, closes %v, %v; want %d", call, answer.Status, answer.Close, err, want)
		}
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("%q: the connection does not end: %v", call, err)
		}
	}

	dial("")
	dial("GET /livez HTTP/1.1\r\n")
	stop()
	if err := <-ended; err != nil {
		t.Errorf("stop: %v", err)
	}
}
