package boot

import (
	"context"
	"io"
	"net/http"
	"time"
)

// readyTimeout is how long the database may take to answer the question whether it does.
const readyTimeout = 2 * time.Second

// healthHandler answers whether the process lives, whether it reaches the database, and with its metrics.
func (w *Worker) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(rw http.ResponseWriter, _ *http.Request) {
		if lane := w.stalled(time.Now()); lane != "" {
			tell(rw, http.StatusServiceUnavailable, "no tick of the "+lane+" lane has ended for "+stalledAfter.String()+"\n")
			return
		}
		tell(rw, http.StatusOK, "ok\n")
	})
	ready := func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := w.db.Ping(ctx); err != nil {
			w.program.Log.WarnContext(ctx, "not ready: the database does not answer", "error", err)
			tell(rw, http.StatusServiceUnavailable, "the database does not answer\n")
			return
		}
		tell(rw, http.StatusOK, "ok\n")
	}
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /health", ready) // Cloud Run reserves some paths that end in z
	if metrics := w.program.publicMetrics(); metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	return bodiless(mux)
}

// stalledAfter is how long no tick of a lane has ended when the worker counts as dead. A tick ends within half of that, also
// while the database does not answer.
const stalledAfter = time.Minute

// stalled is the name of a lane whose ticks do not end, or "".
func (w *Worker) stalled(now time.Time) string {
	for _, lane := range w.lanes {
		if at := lane.Ticked(); !at.IsZero() && now.Sub(at) > stalledAfter {
			return lane.Name()
		}
	}
	return ""
}

// bodiless is for calls that have no body and are answered at once.
func bodiless(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 { // the server would wait for the body before it answers
			rw.Header().Set("Connection", "close")
		}
		_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(healthWrite))
		handler.ServeHTTP(rw, r)
	})
}

// healthWrite is how long a caller may take to read an answer.
const healthWrite = 10 * time.Second

func tell(rw http.ResponseWriter, status int, text string) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, text) // who asked may be gone
}

// healthStop is how long health checks in flight may take to be answered.
const healthStop = time.Second

func (w *Worker) serveHealth(ctx context.Context) error {
	return serve(ctx, newServer(w.healthHandler(), w.program.Log), w.health, healthStop, func() {})
}
