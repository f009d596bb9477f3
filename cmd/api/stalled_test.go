package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// The program receives SIGTERM while connections are stalled in every way:
// silent, in the middle of a head or a body, or without reading answers. It
// ends in time and without an error.
func TestStopsWithStalledConnections(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	api := programtest.Start(t, run, shop.Env())
	front := open(t, shop, api)
	address := strings.TrimPrefix(front.base, "http://")
	dial := func(text string) (net.Conn, *bufio.Reader) {
		t.Helper()
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(5 * time.Minute)) // so that the test fails instead of hanging
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		return conn, bufio.NewReader(conn)
	}
	status := func(r *bufio.Reader, want int) {
		t.Helper()
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _ = answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("answered %s, want %d", answer.Status, want)
		}
	}

	dial("")
	dial("POST /v1/carts/c/items HTTP/1.1\r\nHost: shop\r\n")
	unread, _ := dial("")
	flooded := make(chan struct{})
	go func() { // more answers than fit in the buffers
		defer close(flooded)
		for range 5000 {
			if _, err := io.WriteString(unread, "GET /openapi.json HTTP/1.1\r\nHost: shop\r\n\r\n"); err != nil {
				return
			}
		}
	}()
	const declared = "Content-Length: 100\r\n\r\n"
	_, r := dial("POST /v1/carts/c/items HTTP/1.1\r\nHost: shop\r\n" + declared)
	status(r, http.StatusUnauthorized)
	_, r = dial("POST /v1/carts/c/items HTTP/1.1\r\nHost: shop\r\nExpect: nothing\r\n" + declared)
	status(r, http.StatusExpectationFailed)
	var reading []*bufio.Reader
	for _, call := range []string{"POST /v1/carts/c/items", "PUT /v1/stocks/shirt", "POST /v1/stocks/import"} {
		_, r := dial(call + " HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer " + front.key + "\r\nExpect: 100-continue\r\nContent-Type: \r\n" + declared)
		status(r, http.StatusContinue) // the program waits for the body
		reading = append(reading, r)
	}

	if err := api.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, r := range reading {
		status(r, http.StatusServiceUnavailable)
	}
	_ = unread.Close()
	<-flooded
}
