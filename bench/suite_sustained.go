package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/bench/load"
	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	// sustainedLong is how long the suite lasts on demand, sustainedShort
	// within a run of all suites.
	sustainedLong  = 10 * time.Minute
	sustainedShort = time.Minute
	// sustainedWindows is how many windows the load has. The holds of a window
	// are due in the next.
	sustainedWindows = 10
	// refusedFor is how long a refused client waits: much less than
	// Retry-After, so that the lane never becomes empty.
	refusedFor = 20 * time.Millisecond
	// readEvery is how often the stock is read meanwhile.
	readEvery = 50 * time.Millisecond
)

// sustained has 64 clients add one hot variant to carts and check nothing out,
// so that each hold expires. After the first window holds end at the rate at
// which they are made.
func (b *bench) sustained(ctx context.Context) ([]Measure, error) {
	window := b.options.sustained / sustainedWindows
	ttl := max(window, time.Second)
	f, err := b.newDeployment(ctx, "HOLD_TTL="+ttl.String())
	if err != nil {
		return nil, err
	}
	defer f.close()
	ready := make(chan struct{})
	var found sustainedLoad
	g, loading := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		target := f.target()
		target.Ready, target.AfterRefusal = func() { close(ready) }, refusedFor
		found.result, err = load.Closed(loading, target, httpClients, b.options.sustained, toHot)
		return err
	})
	g.Go(func() error {
		if err := begun(loading, ready); err != nil {
			return err
		}
		return b.watchSustained(loading, f, &found, window)
	})
	g.Go(func() error {
		if err := begun(loading, ready); err != nil {
			return err
		}
		return found.read(loading, f.target(), b.options.sustained)
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return found.measures(b.options.sustained, ttl), f.checkExpired(ctx)
}

// sustainedLoad has the figures of the load.
type sustainedLoad struct {
	result *load.Result
	rates  []float64 // decided per second, by window
	due    []float64 // holds due at the end of a window, over its rate: seconds
	reads  []time.Duration
}

const dueNowSQL = `SELECT count(*) FROM reservations WHERE status = 'held' AND quantity >= 1 AND expires_at <= (SELECT clock_timestamp())`

// held is how many requests the worker has granted so far, by its metrics.
// Counting them in the database would cost more the longer the load lasts.
func (f *deployment) held(ctx context.Context) (n int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.worker.address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "holdfast_decision_requests_total{") || !strings.Contains(line, `outcome="held"`) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("read the worker's metrics: %w", err)
		}
		n += int64(value)
	}
	return n, nil
}

// watchSustained counts the decided requests in each window, and the due holds
// at its end.
func (b *bench) watchSustained(ctx context.Context, f *deployment, found *sustainedLoad, window time.Duration) error {
	began := time.Now()
	last := began
	before, err := f.held(ctx)
	if err != nil {
		return err
	}
	for n := range sustainedWindows {
		if err := sleep.For(ctx, time.Until(began.Add(time.Duration(n+1)*window))); err != nil {
			return err
		}
		decided, err := f.held(ctx)
		if err != nil {
			return err
		}
		var due int64
		now := time.Now()
		rate := float64(decided-before) / now.Sub(last).Seconds()
		last, before = now, decided
		if err := f.db.QueryRow(ctx, dueNowSQL).Scan(&due); err != nil {
			return err
		}
		found.rates, found.due = append(found.rates, rate), append(found.due, ratio(float64(due), rate))
		b.progress("window %d: %.0f/s decided, %d holds are due", n+1, rate, due)
	}
	return nil
}

// read reads the stock over HTTP until the load ends, and keeps the latencies
// of the second half.
func (s *sustainedLoad) read(ctx context.Context, target load.Target, long time.Duration) error {
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < long; {
		asked := time.Now()
		if err := readStock(ctx, client, target); err != nil {
			return err
		}
		if asked.Sub(began) > long/2 {
			s.reads = append(s.reads, time.Since(asked))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

func readStock(ctx context.Context, client *http.Client, target load.Target) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target.Address+"/v1/stocks/"+hotVariant, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+target.Key)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("reading the stock answered %s", response.Status)
	}
	return err
}

// measures are those of the suite. The final rate and the final number of due
// holds are those of the last two windows.
func (s *sustainedLoad) measures(long, ttl time.Duration) []Measure {
	first, end := s.rates[0], s.rates[len(s.rates)-2:]
	rate := newMeasure("sustained_end_vs_start", "ratio", []float64{ratio(median(end), first)})
	rate.between(median(end), first)
	rate.Spread = spread(s.rates[1:])
	rate.note("decided/s in the last fifth of %s and in its first tenth, in which nothing expires; TTL %s, %d refused", long, ttl, s.result.Refused)
	due := newMeasure("sustained_due_seconds", "s", []float64{median(s.due[len(s.due)-2:])})
	read := newMeasure("sustained_read_p99_ms", "ms", []float64{milliseconds(quantile(s.reads, 0.99))})
	read.note("%d reads, p50 %.1f ms", len(s.reads), milliseconds(quantile(s.reads, 0.5)))
	return []Measure{rate, due, read}
}

const expiredCountSQL = `
SELECT (SELECT count(*) FROM reservation_requests WHERE status <> 'done'),
       (SELECT count(*) FROM reservation_requests WHERE status = 'done') - (SELECT count(*) FROM reservations),
       (SELECT count(*) FROM reservations) - (SELECT count(*) FROM audit_log WHERE action = 'reservation.held'),
       (SELECT count(*) FROM reservations WHERE status = 'expired') - (SELECT count(*) FROM audit_log WHERE action = 'reservation.expired'),
       (SELECT count(*) FROM reservations WHERE status = 'held') - (SELECT sum(reserved)::bigint FROM inventory_stocks)`

// checkExpired fails unless no request is undecided, every request has its
// hold, each hold and each expiry has its audit row, and the counters equal the
// sum of the holds.
func (f *deployment) checkExpired(ctx context.Context) error {
	return await(ctx, backlogMax, 100*time.Millisecond, func() (missing string, err error) {
		var undone, requests, held, expired, reserved int64
		if err := f.db.QueryRow(ctx, expiredCountSQL).Scan(&undone, &requests, &held, &expired, &reserved); err != nil {
			return "", err
		}
		switch {
		case undone > 0:
			return fmt.Sprintf("%d requests are not decided", undone), nil
		case requests != 0 || held != 0 || expired != 0 || reserved != 0:
			return "", fmt.Errorf("the rows do not add up: %d requests more than holds, %d holds and %d expiries without record, %d held but not reserved",
				requests, held, expired, reserved)
		default:
			return "", nil
		}
	})
}
