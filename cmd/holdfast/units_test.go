package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

func TestUnits(t *testing.T) {
	t.Parallel()
	c := newTool(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "hall.csv")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("unit_id,position\nA1,\nA2,\nB1,10\n,1\n")
	c.expect(map[string]any{"added": 3., "unchanged": 0., "rejected": 1.}, "units", "import", "the/hall", file)
	c.expect(map[string]any{"added": 0., "unchanged": 3., "rejected": 1.}, "units", "import", "the/hall", file, "--format", "csv")
	want := "3 active, 0 pending, 0 inactive\n" +
		fmt.Sprintf("%-40s %12s  %s\n", "UNIT", "POSITION", "STATUS") +
		fmt.Sprintf("%-40s %12d  %s\n", "A1", 1, "active") +
		fmt.Sprintf("%-40s %12d  %s\n", "A2", 2, "active") +
		fmt.Sprintf("%-40s %12d  %s\n", "B1", 10, "active")
	if diff := cmp.Diff(want, c.run("units", "list", "the/hall")); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	var many strings.Builder
	many.WriteString("unit_id\n")
	for i := range unitsPage + 1 {
		fmt.Fprintf(&many, "%04d\n", i)
	}
	write(many.String())
	c.run("units", "import", "large", file)
	lines := strings.Split(strings.TrimSpace(c.run("units", "list", "large", "--json")), "\n")
	if len(lines) != unitsPage+1 || lines[unitsPage] != `{"unit_id":"0500","position":501,"status":"active"}` {
		t.Errorf("%d lines, the last is %s", len(lines), lines[len(lines)-1])
	}
	if problem, ok := errors.AsType[*client.Error](c.fail("units", "list", "none")); !ok || problem.Code != "not_found" {
		t.Errorf("an unknown block: %v", problem)
	}
	if err := c.fail("units", "import", "hall", filepath.Join(dir, "hall.txt")); !errors.As(err, new(*boot.UsageError)) {
		t.Errorf("a file of another kind: %v", err)
	}
}

// twoServices starts two processes of the all-in-one on one database.
func twoServices(t *testing.T) (*programtest.Fixture, [2]service) {
	t.Helper()
	shop := programtest.NewFixture(t)
	var services [2]service
	for i := range services {
		services[i] = ready(t, programtest.StartProcess(t, shop.Env("LOG_LEVEL", "warn"), "run", "--port", "0").Stdout)
	}
	return shop, services
}

// importSeats makes a block of n seats: s1, s2 and so on.
func (s service) importSeats(block string, n int) {
	s.t.Helper()
	var text strings.Builder
	text.WriteString("unit_id\n")
	for i := range n {
		fmt.Fprintf(&text, "s%d\n", i+1)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPut, s.url+"/v1/units/"+block+"/import", strings.NewReader(text.String()))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "text/csv")
	s.do(r, http.StatusOK)
}

// race adds the item to many carts at once, through both services in turns, and
// returns the units of each cart that holds any. The others must be out of
// stock.
func race(t *testing.T, services [2]service, carts int, item string) (held [][]any) {
	t.Helper()
	var all sync.WaitGroup
	bodies := make([]map[string]any, carts)
	for i := range carts {
		all.Go(func() {
			s := services[i%2]
			id := s.call(http.MethodPost, fmt.Sprintf("/v1/carts/cart-%d/items", i), item, http.StatusAccepted)["request_id"]
			for bodies[i]["status"] != "done" && bodies[i]["status"] != "failed" && t.Context().Err() == nil && !t.Failed() {
				bodies[i] = s.call(http.MethodGet, fmt.Sprintf("/v1/requests/%s?wait=10", id), "", http.StatusOK)
			}
		})
	}
	all.Wait()
	for i, body := range bodies {
		switch units, _ := body["unit_ids"].([]any); {
		case body["status"] == "done" && body["reservation"] != nil:
			held = append(held, units)
		case body["reason"] != "out_of_stock":
			t.Errorf("cart %d: %v", i, body)
		}
	}
	return held
}

// 64 carts want any four of 200 seats, through two processes: 50 carts hold
// four seats each, and no seat twice. 100 carts want the same seat: one holds
// it. 20 carts want four neighbours of 41 seats: ten hold them.
func TestSaleOfABlock(t *testing.T) {
	t.Parallel()
	shop, services := twoServices(t)
	services[0].importSeats("hall", 200)
	held := race(t, services, 64, `{"block":"hall","any_of":4}`)
	owners := map[any]bool{}
	for _, units := range held {
		if len(units) != 4 {
			t.Errorf("a cart holds %v", units)
		}
		for _, u := range units {
			if owners[u] {
				t.Errorf("%v is held twice", u)
			}
			owners[u] = true
		}
	}
	if len(held) != 50 || len(owners) != 200 {
		t.Errorf("%d carts hold %d seats, want 50 and 200", len(held), len(owners))
	}

	services[1].importSeats("box", 3)
	held = race(t, services, 100, `{"block":"box","unit_ids":["s2"]}`)
	if diff := cmp.Diff([][]any{{"s2"}}, held); diff != "" {
		t.Errorf("holders of one seat (-want +got):\n%s", diff)
	}

	services[1].importSeats("balcony", 41)
	held = race(t, services, 20, `{"block":"balcony","any_of":4,"contiguous":true}`)
	if len(held) != 10 {
		t.Errorf("%d carts hold neighbours, want 10", len(held))
	}
	for _, units := range held {
		var numbers [4]int
		for i := range numbers {
			if _, err := fmt.Sscanf(fmt.Sprint(units[i]), "s%d", &numbers[i]); err != nil || numbers[i] != numbers[0]+i {
				t.Errorf("%v are no neighbours", units)
			}
		}
	}
	for block, want := range map[string][3]any{"hall": {0., 200., 0.}, "box": {2., 1., 0.}, "balcony": {1., 40., 0.}} {
		page := services[0].call(http.MethodGet, "/v1/units/"+block+"?limit=1", "", http.StatusOK)
		if got := [3]any{page["active"], page["pending"], page["inactive"]}; got != want {
			t.Errorf("%s has %v active, pending and inactive units, want %v", block, got, want)
		}
	}
	shop.Verify()
}
