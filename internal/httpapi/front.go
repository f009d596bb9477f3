package httpapi

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/holdfast/holdfast/internal/tenants"
)

// Cell is one of the databases over which the API is served.
type Cell struct {
	// Name is its name in CELLS, which is in the tickets of its live connections.
	Name string
	// Handler is the API over the cell, made by New, whose Config has the Name.
	Handler http.Handler
	Keys    *tenants.Authenticator
}

// front is the API over several cells.
type front struct {
	cells  []Cell
	finder *tenants.Finder
}

// NewFront makes the API over several cells. It passes each call to the cell of
// its key. A call without one, such as for the document, is answered by the
// first cell, and the probes by all of them.
func NewFront(cells []Cell) http.Handler {
	f := &front{cells: cells}
	keys := make([]*tenants.Authenticator, len(cells))
	for i := range cells {
		keys[i] = cells[i].Keys
	}
	f.finder = tenants.NewFinder(keys)
	return f
}

// ServeHTTP serves a call.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/readyz", "/health":
		f.probe(w, r)
		return
	case LivePath:
		f.cells[f.ofTicket(r)].Handler.ServeHTTP(w, r)
		return
	}
	plaintext, ok := bearer(r.Header)
	if !ok {
		f.cells[0].Handler.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), defaultBounds.authenticate)
	cell, err := f.finder.Find(ctx, plaintext)
	cancel()
	if down, is := errors.AsType[*tenants.UnavailableError](err); is {
		// The first cell may be the one that is down. It answers without its
		// database.
		cell, err = 0, &cellError{f.cells[down.Cell].Name, down}
	}
	if err != nil {
		r = r.WithContext(context.WithValue(r.Context(), refusalKey{}, err))
	}
	f.cells[cell].Handler.ServeHTTP(w, r)
}

// cellError means that a cell does not respond.
type cellError struct {
	name string
	err  error
}

func (e *cellError) Error() string { return "cell " + e.name + ": " + e.err.Error() }

// Unwrap returns the error of the database.
func (e *cellError) Unwrap() error { return e.err }

// refusalKey is the key of the error with which the front refuses a call. The
// cell's API answers with it once it asks for the caller's key.
type refusalKey struct{}

func refusal(ctx context.Context) error {
	err, _ := ctx.Value(refusalKey{}).(error)
	return err
}

// ofTicket returns the cell that the ticket of a live connection names, or the
// first one, which refuses it.
func (f *front) ofTicket(r *http.Request) int {
	ticket := r.URL.Query().Get("ticket")
	for i := range f.cells {
		if strings.HasPrefix(ticket, f.cells[i].Name+ticketSeparator) {
			return i
		}
	}
	return 0
}

// ticketSeparator is between the name of a cell and its ticket.
const ticketSeparator = "."

// readinessJSON is the state of each cell.
type readinessJSON struct {
	Status string            `json:"status" enum:"ok"`
	Cells  map[string]string `json:"cells"`
}

// probe answers with the state of each cell. The service is ready while one of
// them is: the tenants of the others would not be served by another process
// either.
func (f *front) probe(w http.ResponseWriter, r *http.Request) {
	answers := make([]answerOnly, len(f.cells))
	var group sync.WaitGroup
	for i := range f.cells {
		group.Go(func() { f.cells[i].Handler.ServeHTTP(&answers[i], r.Clone(r.Context())) })
	}
	group.Wait()
	ready := readinessJSON{"ok", make(map[string]string, len(f.cells))}
	var last *answerOnly
	for i := range answers {
		state := "ok"
		if answers[i].status != http.StatusOK {
			state, last = notReady.code, &answers[i]
		}
		ready.Cells[f.cells[i].Name] = state
	}
	for _, state := range ready.Cells {
		if state == "ok" {
			jsonResponse(http.StatusOK, ready).write(w)
			return
		}
	}
	last.writeTo(w)
}

// answerOnly keeps the answer of a handler.
type answerOnly struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header returns the header of the answer.
func (a *answerOnly) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader keeps the first status.
func (a *answerOnly) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write keeps a part of the body.
func (a *answerOnly) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *answerOnly) writeTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the caller may be gone
}
