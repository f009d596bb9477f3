package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// A page sees what a caller adds to a cart: the projections fold the record,
// and the live connection delivers the result. The operator's channel is
// sampled beside it.
func TestLive(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	s := ready(t, programtest.StartProcess(t, shop.Env("PORT", "0"), "run").Stdout)
	s.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":10}`, http.StatusOK)
	ticket, _ := s.call(http.MethodPost, "/v1/live/tickets", "", http.StatusCreated)["ticket"].(string)
	conn, _, err := websocket.Dial(t.Context(), s.url+"/v1/live?ticket="+ticket, nil) //nolint:bodyclose // the response has no body
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(1 << 20)
	for _, channel := range []string{"projection.stocks.availability.shirt", "ops.overview"} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"subscribe":"`+channel+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	s.call(http.MethodPost, "/v1/carts/c/items", `{"variant_id":"shirt","quantity":3}`, http.StatusAccepted, http.StatusOK)
	available, sampled := int64(-1), 0
	for available != 7 || sampled < 2 {
		_, text, err := conn.Read(t.Context())
		if err != nil {
			t.Fatalf("at %d available, after %d samples: %v", available, sampled, err)
		}
		var f struct {
			Channel, Event string
			Payload        struct{ Available int64 }
		}
		if err := json.Unmarshal(text, &f); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		switch {
		case f.Event == "error":
			t.Fatalf("received %s", text)
		case f.Channel == "ops.overview":
			sampled++
		case f.Channel != "":
			available = f.Payload.Available
		}
	}
}
