package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/wiring"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// In both lanes a worker decides requests that are queued, and requests that
// arrive while it runs.
func TestServes(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 30)
	shop.Stock("ticket", 20)
	shop.Pin("ticket")
	shop.Admit("ticket", 10)
	worker := programtest.Start(t, run, shop.Env())
	worker.Stderr.Line(t, "the worker serves")
	shop.Admit("shirt", 40)
	shop.Await(programtest.Count{Done: 40, Failed: 10, Held: 40})
	if err := worker.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	shop.Verify()
}

func TestOneShot(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 30)
	shop.Stock("ticket", 20)
	shop.Pin("ticket")
	shop.Admit("ticket", 30)
	shop.Admit("shirt", 40)
	stdout, _, err := programtest.Once(t, run, shop.Env("INVENTORY_WORKER_ONESHOT", "true"))
	if err != nil {
		t.Fatal(err)
	}
	var report wiring.DrainReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("the report %q: %v", stdout, err)
	}
	want := wiring.DrainReport{Claimed: 70, Held: 50, Rejected: 20}
	if diff := cmp.Diff(want, report, cmpopts.IgnoreFields(report, "Passes", "Seconds")); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(programtest.Count{Done: 50, Failed: 20, Held: 50}, shop.Count()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	shop.Verify()
}

// A worker serves only its lanes.
func TestServesItsOwn(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 30)
	shop.Stock("ticket", 20)
	shop.Pin("ticket")
	shop.Admit("ticket", 5)
	shop.Admit("shirt", 5)
	for _, step := range []struct {
		lanes string
		want  programtest.Count
	}{
		{"normal", programtest.Count{Unfinished: 5, Done: 5, Held: 5}},
		{"hot", programtest.Count{Done: 10, Held: 10}},
	} {
		env := shop.Env("INVENTORY_WORKER_ONESHOT", "true", "WORKER_LANES", step.lanes)
		if _, _, err := programtest.Once(t, run, env); err != nil {
			t.Fatalf("lanes %s: %v", step.lanes, err)
		}
		if diff := cmp.Diff(step.want, shop.Count()); diff != "" {
			t.Errorf("lanes %s (-want +got):\n%s", step.lanes, diff)
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"no database":  {map[string]string{}, nil, "DATABASE_URL is not set"},
		"bad variable": {map[string]string{"HOT_BATCH": "many"}, nil, `HOT_BATCH must be a whole number, not "many"`},
		"bad URL":      {map[string]string{"DATABASE_URL": "postgres://localhost:port/x"}, nil, "DATABASE_URL must be postgres://user:password@host:5432/database"},
		"no server": {
			map[string]string{"DATABASE_URL": "postgres://u:secret@127.0.0.1:1/x", "DATABASE_WAIT_MAX": "1ms"}, nil,
			"connect to the database that DATABASE_URL names",
		},
		"arguments": {map[string]string{}, []string{"--lane", "hot"}, "it takes no arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := programtest.Once(t, run, c.env, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, want a sentence with %q and without the password", err, c.want)
			}
		})
	}
}
