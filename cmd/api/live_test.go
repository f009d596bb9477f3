package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/frames"
)

// A ticket of one process opens a connection to another one. Both processes
// deliver a frame to their clients, and close the connections when they stop.
func TestLive(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	const channel = "projection.stocks.availability.shirt"
	one, two := programtest.Start(t, run, shop.Env()), programtest.Start(t, run, shop.Env())
	fronts := []*storefront{open(t, shop, one), open(t, shop, two)}
	read := func(conn *websocket.Conn) string {
		t.Helper()
		_, text, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var conns []*websocket.Conn
	for i, front := range fronts {
		status, body, err := fronts[1-i].call(http.MethodPost, "/v1/live/tickets", "")
		ticket, ok := body["ticket"].(string)
		if err != nil || status != http.StatusCreated || !ok {
			t.Fatalf("ticket: %d %v %v", status, body, err)
		}
		conn, _, err := websocket.Dial(t.Context(), front.base+"/v1/live?ticket="+ticket, nil) //nolint:bodyclose // the response has no body
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"subscribe":"`+channel+`"}`)); err != nil {
			t.Fatal(err)
		}
		if got := read(conn); !strings.Contains(got, `"event":"snapshot","version":0,"payload":null`) {
			t.Errorf("received %s", got)
		}
		conns = append(conns, conn)
	}
	err := frames.Send(t.Context(), shop.DB, []frames.Frame{{
		TenantID: shop.Tenant, Channel: channel, Event: "delta", First: 1, Version: 1, Payload: json.RawMessage(`{"available":1}`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, program := range []*programtest.Inside{one, two} {
		if got := read(conns[i]); !strings.Contains(got, `"version":1,"payload":{"available":1}`) {
			t.Errorf("received %s", got)
		}
		closed := make(chan error, 1)
		go func() {
			for {
				if _, _, err := conns[i].Read(t.Context()); err != nil {
					closed <- err
					return
				}
			}
		}()
		if err := program.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if end, ok := errors.AsType[websocket.CloseError](<-closed); !ok || end.Code != websocket.StatusGoingAway {
			t.Errorf("closed with %v", end)
		}
	}
}
