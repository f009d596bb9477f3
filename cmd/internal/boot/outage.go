package boot

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/holdfast/holdfast/internal/pg"
)

const (
	// outageTick is how often the state of an outage is checked.
	outageTick = time.Second
	// outageEvery is how often a continuing outage is reported.
	outageEvery = 10 * time.Second
	// outageQuiet is how long the log must be without such errors before the
	// database is probed.
	outageQuiet = 5 * time.Second
	// probeTimeout is how long the database may take to answer.
	probeTimeout = 2 * time.Second
)

// outages reduces the thousands of errors of a database outage to a few lines:
// one when it begins, one per outageEvery while errors come, with their number
// and the latest, and one when the database answers again.
//
// An error belongs to an outage if pg.IsOutage reports so. A record of River
// that names no SQLSTATE belongs to one if an outage has begun, or if the
// database does not answer a probe, for which the logging goroutine waits.
//
// It is safe for concurrent use. Its goroutine ends with the outage, or with
// close.
type outages struct {
	lines slog.Handler // where the lines go

	mu       sync.Mutex
	probe    func(context.Context) error // returns nil if the database answers; nil before there is a pool
	open     bool
	began    time.Time
	failed   time.Time // the latest error, of a record or of a probe
	reported time.Time // the latest line
	omitted  int       // records since that line
	total    int       // records of this outage, its first among them
	latest   slog.Attr // the error of the latest record
	watched  bool      // a goroutine runs watch

	running context.Context //nolint:containedctx // the life of the goroutine
	stop    context.CancelFunc
	watcher sync.WaitGroup
}

// newOutages returns outages that writes its lines to the handler.
func newOutages(lines slog.Handler) *outages {
	o := &outages{lines: lines}
	o.running, o.stop = context.WithCancel(context.Background())
	return o
}

// probeWith sets the function that checks whether the database answers.
func (o *outages) probeWith(probe func(context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probe = probe
}

// absorb reports whether the record is not to be logged, because it belongs to
// an outage. A record that names a request is always logged.
func (o *outages) absorb(next slog.Handler, r slog.Record, isRivers bool) bool {
	var failure error
	named := false
	r.Attrs(func(a slog.Attr) bool {
		named = named || a.Key == "request_id"
		if failure == nil {
			failure = errorIn(a)
		}
		return true
	})
	certain := pg.IsOutage(failure)
	possible := isRivers && pg.Code(failure) == ""
	if named || !certain && !possible {
		return false
	}
	if !certain && !o.isOpen() {
		_, err := o.check()
		certain = err != nil && !errors.Is(err, puddle.ErrClosedPool) // this process closed the pool
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.running.Err() != nil:
		return false
	case o.open:
		o.omitted++
		o.total++
		o.failed = time.Now()
		o.latest = slog.Group("latest", "msg", r.Message, "error", failure)
	case certain:
		o.begin(next, r)
	default:
		return false
	}
	if !o.watched {
		o.watched = true
		o.watcher.Go(o.watch)
	}
	return true
}

func (o *outages) isOpen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}

// begin logs that an outage begins, with all attributes of its first record.
func (o *outages) begin(next slog.Handler, first slog.Record) {
	now := time.Now()
	o.open, o.began, o.failed, o.reported = true, now, now, now
	o.omitted, o.total = 0, 1
	o.latest = slog.Attr{}
	line := slog.NewRecord(now, slog.LevelWarn, "the database does not answer as it should: an outage begins", 0)
	line.AddAttrs(slog.String("first", first.Message))
	first.Attrs(func(a slog.Attr) bool { line.AddAttrs(a); return true })
	ctx := context.Background()
	if next.Enabled(ctx, line.Level) {
		_ = next.Handle(ctx, line) // a failure of the log cannot be logged
	}
}

// report logs a line about the outage.
func (o *outages) report(level slog.Level, message string) {
	slog.New(o.lines).LogAttrs(context.Background(), level, message, //nolint:sloglint // a constant of each caller
		slog.Int("left_out", o.omitted), slog.Int("errors", o.total),
		slog.String("lasted", o.failed.Sub(o.began).Round(time.Millisecond).String()), o.latest)
	o.omitted, o.reported = 0, time.Now()
}

func (o *outages) watch() {
	tick := time.NewTicker(outageTick)
	defer tick.Stop()
	for {
		select {
		case <-o.running.Done():
			return
		case <-tick.C:
		}
		if o.isCheckDue() && o.conclude(o.check()) {
			return
		}
	}
}

// isCheckDue reports whether it is time to probe the database. If errors still
// come, it logs that the outage continues.
func (o *outages) isCheckDue() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.omitted > 0 && time.Since(o.reported) >= outageEvery {
		o.report(slog.LevelWarn, "the outage of the database goes on")
	}
	return time.Since(o.failed) >= outageQuiet
}

// check probes the database, and also returns when the probe began.
func (o *outages) check() (began time.Time, err error) {
	o.mu.Lock()
	probe := o.probe
	o.mu.Unlock()
	began = time.Now()
	if probe == nil {
		return began, nil
	}
	ctx, cancel := context.WithTimeout(o.running, probeTimeout)
	defer cancel()
	return began, probe(ctx)
}

// conclude acts on the result of a probe, and reports whether nothing is left
// to watch.
func (o *outages) conclude(began time.Time, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.running.Err() != nil: // close does the rest
		return true
	case err != nil:
		o.failed = time.Now()
	case o.failed.Before(began):
		o.report(slog.LevelInfo, "the database answers again: the outage is over")
		o.open = false
	}
	o.watched = o.open
	return !o.watched
}

// close logs the number of records left out. Every later record is logged
// unchanged.
func (o *outages) close() {
	o.mu.Lock()
	o.stop()
	o.mu.Unlock()
	o.watcher.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open {
		o.open = false
		o.report(slog.LevelWarn, "the program ends during an outage of the database")
	}
}
