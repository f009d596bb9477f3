package traffic

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/internal/lanes"
)

const stock = 25

// basketsFor returns baskets as text, and the expected report of their replay.
func basketsFor(n int) (text string, want Report) {
	list := generate(7, n, 40)
	want = Report{Accepted: int64(list.items), Baskets: n, Items: list.items, Connections: 64, Verified: true}
	for _, wanted := range list.demand() {
		want.Held += min(wanted, stock)
		want.OutOfStock += max(0, wanted-stock)
	}
	return list.text(), want
}

// measured are the fields that differ between runs.
var measured = cmpopts.IgnoreFields(Report{}, "Seconds", "P50", "P99", "Mean", "AcceptMean", "Retries")

func TestReplay(t *testing.T) {
	t.Parallel()
	s := start(t)
	text, want := basketsFor(200)
	got, err := Replay(t.Context(), ReplayConfig{URLs: []string{s.url(), s.url() + "/"}, Key: s.key, Baskets: strings.NewReader("\n" + text + ", ,\n"), Stock: stock})
	if err != nil {
		t.Fatal(err)
	}
	want.BlankLines, want.BlankItems = 1, 3
	if diff := cmp.Diff(want, got, measured); diff != "" {
		t.Error(diff)
	}
	if got.P50 <= 0 || got.P99 < got.P50 || got.Seconds <= 0 {
		t.Errorf("p50 %v ms, p99 %v ms in %v s", got.P50, got.P99, got.Seconds)
	}
	// The waits of all adds together are at most the time of all connections;
	// 1.01 allows for rounding.
	if waited := float64(got.Accepted) * got.Mean / 1000; got.AcceptMean <= 0 || got.AcceptMean > got.Mean || waited > 1.01*float64(got.Connections)*got.Seconds {
		t.Errorf("%d adds of %v ms each, %v ms of them until 202, by %d connections in %v s", got.Accepted, got.Mean, got.AcceptMean, got.Connections, got.Seconds)
	}
	if n := s.count(`SELECT count(*) FROM reservation_requests WHERE tenant_id = $1`, s.tenant); n != want.Items {
		t.Errorf("%d requests for %d items", n, want.Items)
	}
	if n := s.count(`SELECT coalesce(sum(reserved), 0) FROM inventory_stocks WHERE tenant_id = $1`, s.tenant); int64(n) != want.Held {
		t.Errorf("%d units reserved, want %d", n, want.Held)
	}
	s.mustVerify()

	// A second run uses the remaining stock. It does not count the holds of the
	// first run.
	again, err := Replay(t.Context(), ReplayConfig{URLs: []string{s.url()}, Key: s.key, Baskets: strings.NewReader(text), Stock: stock + 3})
	if err != nil {
		t.Fatal(err)
	}
	if !again.Verified || again.Accepted != want.Accepted || again.Held == 0 || again.Held >= want.Held {
		t.Errorf("a second run: %+v", again)
	}
	s.mustVerify()
}

// TestReplayThroughFaults loses every ninth answer, after the service has handled
// the call, and refuses every eleventh call.
func TestReplayThroughFaults(t *testing.T) {
	t.Parallel()
	s := start(t)
	url := s.through(func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n%11 == 0 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return n%11 == 0
	}, func(n int, _ *http.Response) error {
		if n%9 == 0 {
			return errors.New("the answer is lost")
		}
		return nil
	})
	text, want := basketsFor(100)
	got, err := Replay(t.Context(), ReplayConfig{URLs: []string{url}, Key: s.key, Baskets: strings.NewReader(text), Stock: stock})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, measured); diff != "" {
		t.Error(diff)
	}
	if n := s.count(`SELECT count(*) FROM reservation_requests WHERE tenant_id = $1`, s.tenant); n != want.Items || got.Retries == 0 {
		t.Errorf("%d requests for %d items after %d retries", n, want.Items, got.Retries)
	}
	s.mustVerify()
}

// TestReplayThroughARestart stops the service, API and worker, during the run and
// starts it again.
func TestReplayThroughARestart(t *testing.T) {
	t.Parallel()
	s := start(t)
	var restart sync.WaitGroup
	url := s.through(func(n int, _ http.ResponseWriter, _ *http.Request) bool {
		if n == 300 {
			restart.Go(func() { s.stop(); s.start() })
		}
		return false
	}, nil)
	text, want := basketsFor(200)
	got, err := Replay(t.Context(), ReplayConfig{URLs: []string{url}, Key: s.key, Baskets: strings.NewReader(text), Stock: stock})
	restart.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, measured); diff != "" {
		t.Error(diff)
	}
	if got.Retries == 0 {
		t.Error("no call was affected by the restart")
	}
	s.mustVerify()
}

func TestReplayStalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, lane := range lanes.All() {
		if err := lanes.Control(t.Context(), s.db, lane, lanes.Patch{Paused: new(true)}, audit.Origin{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Replay(t.Context(), ReplayConfig{
		URLs: []string{s.url()}, Key: s.key, Baskets: strings.NewReader("milk\nbread\nmilk"), Stock: 5, StallAfter: 5 * time.Second,
	})
	if !errors.Is(err, ErrStalled) || !strings.Contains(err.Error(), "3 of 3 accepted, 0 decided") {
		t.Errorf("with both lanes paused: %v", err)
	}
}

// TestReplayFindsDifferences falsifies the API's answer about one stock after the
// run.
func TestReplayFindsDifferences(t *testing.T) {
	t.Parallel()
	s := start(t)
	url := s.through(nil, func(_ int, a *http.Response) error {
		if a.Request.Method != http.MethodGet || a.Request.URL.Path != "/v1/stocks/milk" {
			return nil
		}
		body, err := io.ReadAll(a.Body)
		body = bytes.Replace(body, []byte(`"available":3`), []byte(`"available":4`), 1)
		a.Body = io.NopCloser(bytes.NewReader(body))
		return err
	})
	got, err := Replay(t.Context(), ReplayConfig{URLs: []string{url}, Key: s.key, Baskets: strings.NewReader("milk,bread\nmilk"), Stock: 5})
	if err != nil {
		t.Fatal(err)
	}
	if got.Verified || len(got.Differences) != 1 || !strings.HasPrefix(got.Differences[0], `"milk": of 2 wanted and 5 available, 2 held`) || got.Held != 3 {
		t.Errorf("%+v", got)
	}
}

func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, c := range map[string]ReplayConfig{
		"no key":              {URLs: []string{s.url()}},
		"no address":          {Key: s.key},
		"too few connections": {URLs: []string{s.url()}, Key: s.key, Connections: -1},
		"a negative stock":    {URLs: []string{s.url()}, Key: s.key, Stock: -1},
	} {
		c.Baskets = strings.NewReader("milk")
		if _, err := Replay(t.Context(), c); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
	_, err := Replay(t.Context(), ReplayConfig{URLs: []string{s.url()}, Key: "hf_wrong", Baskets: strings.NewReader("milk")})
	if problem, ok := errors.AsType[*client.Error](err); !ok || problem.Status != http.StatusUnauthorized {
		t.Errorf("a wrong key: %v", err)
	}
	if n := s.count(`SELECT count(*) FROM reservation_requests`); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	report := Report{
		Accepted: 100, Held: 60, OutOfStock: 39, FailedOther: 1, Seconds: 2, P50: 12.34, P99: 56.7, Verified: true,
		Baskets: 30, Items: 100, BlankLines: 1, BlankItems: 2, Retries: 5,
		Connections: 64, AcceptMean: 50.25, Mean: 80.5,
	}
	var out bytes.Buffer
	report.Print(&out)
	want := `100 items of 30 baskets (left out: 1 blank lines, 2 blank items)

  accepted                 100
  held                      60
  out of stock              39
  other failures             1

  until all decided       2.00 s, 50 per second
  an add             p50 12.3 ms, p99 56.7 ms (from sending to the known outcome)
  sent again                 5 calls, each with its first key

The callers set the pace: each of 64 connections waits 50.2 ms for its 202 and 80.5 ms for its outcome, so 795 per
second is the most they can add. --connections sets how many there are; ` + "`make bench`" + ` measures how much the
service can take.

Verified: of every item exactly as many are held as were wanted and available.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	text, err := json.Marshal(report)
	wantJSON := `{"accepted":100,"held":60,"out_of_stock":39,"failed_other":1,"seconds":2,"p50_ms":12.34,"p99_ms":56.7,"mean_ms":80.5,"accept_mean_ms":50.25,"connections":64,"verified":true,` +
		`"baskets":30,"items":100,"blank_lines":1,"blank_items":2,"retries":5}`
	if err != nil || string(text) != wantJSON {
		t.Errorf("%s, %v", text, err)
	}
	out.Reset()
	report.Verified, report.Differences = false, []string{"milk"}
	report.Print(&out)
	if !strings.HasSuffix(out.String(), "NOT AS IT SHOULD BE:\n  milk\n") {
		t.Error(out.String())
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("q %v: %d, want %d", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("without values: %v", got)
	}
}
