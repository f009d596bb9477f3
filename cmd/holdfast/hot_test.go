package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// A variant that sells becomes hot automatically in the running programs, and
// the list of lanes shows the reason.
func TestHotAutomatically(t *testing.T) {
	t.Parallel()
	env := map[string]string{"LOG_LEVEL": "warn", "HOT_PROMOTE_RATE": "1"}
	process := programtest.StartProcess(t, env, "run", "--port", "0")
	s := ready(t, process.Stdout)
	s.call(http.MethodPut, "/v1/stocks/ticket", `{"stock":1000000}`, http.StatusOK)
	s.call(http.MethodPut, "/v1/stocks/kept", `{"stock":1000000,"lane":"normal"}`, http.StatusOK)
	carts := 0
	pgtest.Until(t, "the ticket is hot", func() bool {
		carts++
		for _, variant := range []string{"ticket", "kept"} {
			s.call(http.MethodPost, fmt.Sprintf("/v1/carts/%d/items", carts), fmt.Sprintf(`{"variant_id":%q,"quantity":1}`, variant), http.StatusAccepted)
		}
		return s.call(http.MethodGet, "/v1/stocks/ticket", "", http.StatusOK)["current_lane"] == "hot"
	})
	s.add("last", "ticket")
	lanes := s.call(http.MethodGet, "/v1/lanes", "", http.StatusOK)
	listed, ok := lanes["hot_variants"].([]any)
	if !ok || len(listed) != 1 {
		t.Fatalf("hot are %v, want only the ticket", lanes["hot_variants"])
	}
	if v, ok := listed[0].(map[string]any); !ok || v["variant_id"] != "ticket" || v["pinned"] != false || v["why"] == nil {
		t.Errorf("the ticket is listed as %v", listed[0])
	}
	if process.Stderr.String() != "" {
		t.Errorf("it logs warnings or errors:\n%s", process.Stderr)
	}
}
