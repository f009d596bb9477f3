package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// step is a call of clients/service.json, what it returns at least or the error with
// which it fails, and which fields of the result later steps name as $name.
type step struct {
	Call, Cart, Variant, Key, ID, Group, Customer, Token, Subject string
	Variants                                                      []string
	Quantity                                                      int32
	Delta, Seconds                                                int64
	Limit                                                         int
	Settings                                                      client.StockPatch
	Want                                                          json.RawMessage
	Fails                                                         *struct {
		Status int
		Code   string
	}
	Save map[string]string
}

// The Go client passes the cases at a running service that the TypeScript client
// passes, too.
func TestClient(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	env := shop.Env()
	env["METERED_COMMANDS_ENABLED"] = "true"
	s := ready(t, programtest.Start(t, run, env, "run").Stdout)
	c, err := client.New(client.Config{URLs: []string{s.url}, Key: s.key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	text, err := os.ReadFile("../../clients/service.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name  string
		Steps []json.RawMessage
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) { //nolint:paralleltest // it ends before the service does
			saved := map[string]any{}
			for _, text := range tc.Steps {
				take(t, c, text, saved)
			}
		})
	}
	payments(t, c)
	shop.Verify()
}

// take makes the call of a step, and compares what it returns.
func take(t *testing.T, c *client.Client, text json.RawMessage, saved map[string]any) {
	t.Helper()
	text = []byte(os.Expand(string(text), func(name string) string { return fmt.Sprint(saved[name]) }))
	var s step
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	result, err := calls[s.Call](t.Context(), c, &s)
	if refused, ok := errors.AsType[*client.Error](err); ok && s.Fails != nil && refused.Status == s.Fails.Status && refused.Code == s.Fails.Code {
		return
	}
	if err != nil || s.Fails != nil {
		t.Fatalf("%s: %+v, %v", text, result, err)
	}
	var got, want any
	encoded, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.Unmarshal(encoded, &got), json.Unmarshal(s.Want, &want)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if !contains(got, want) {
		t.Fatalf("%s: got %s", text, encoded)
	}
	for name, path := range s.Save {
		saved[name] = field(got, path)
	}
}
