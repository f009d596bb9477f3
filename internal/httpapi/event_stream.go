package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
)

// Bounds of the streams of a process.
const (
	// streamsMax is how many streams are open at one time, and tenantStreamsMax
	// how many of one tenant. A further one is refused.
	streamsMax, tenantStreamsMax = 4000, 2000
	// reconnectAfter is how long a client waits before it connects again.
	reconnectAfter = time.Second
	// lastReadTimeout bounds the read of the last state when the program stops.
	lastReadTimeout = time.Second
)

// openStreams counts the streams that are open.
type openStreams struct {
	mu       sync.Mutex
	total    int
	byTenant map[uuid.UUID]int
}

// enter counts a stream of the tenant until leave is called.
//
// Errors: *admission.RefusedError if too many streams are open.
func (o *openStreams) enter(tenantID uuid.UUID) (leave func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	tenantOnly := o.byTenant[tenantID] >= tenantStreamsMax
	if tenantOnly || o.total >= streamsMax {
		return nil, &admission.RefusedError{TenantOnly: tenantOnly, Why: admission.WhyQueue, RetryAfter: time.Second}
	}
	if o.byTenant == nil {
		o.byTenant = make(map[uuid.UUID]int)
	}
	o.total++
	o.byTenant[tenantID]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.total--
		o.byTenant[tenantID]--
		if o.byTenant[tenantID] == 0 {
			delete(o.byTenant, tenantID)
		}
	}, nil
}

// eventStream writes server-sent events (WHATWG HTML, section 9.2). Each event
// has an id, which the client sends back as Last-Event-ID when it connects
// again.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	every   time.Duration // between heartbeats
	last    string        // id of the last event that the client has
	wrote   time.Time
	checked time.Time // when access was called
	// access returns an error if the client may no longer follow the stream.
	access func() error
}

// send sends an event, unless the client has it. body is JSON in one line. It
// fails if the client may no longer follow the stream.
func (e *eventStream) send(id, event string, body []byte) error {
	if err := e.check(); err != nil {
		return err
	}
	if id == e.last {
		return e.beat()
	}
	e.last = id
	return e.write("id: " + id + "\nevent: " + event + "\ndata: " + string(body) + "\n\n")
}

// beat sends a comment if nothing was sent for a while. Proxies then keep the
// connection, and a client that left is detected.
func (e *eventStream) beat() error {
	if err := e.check(); err != nil {
		return err
	}
	if time.Since(e.wrote) < e.every {
		return nil
	}
	return e.write(": heartbeat\n\n")
}

// check calls access once per heartbeat, however many events are sent.
func (e *eventStream) check() error {
	if time.Since(e.checked) < e.every {
		return nil
	}
	e.checked = time.Now()
	return e.access()
}

func (e *eventStream) write(text string) error {
	e.wrote = time.Now()
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.control.Flush()
}

// streamEnds is when a stream ends, for the document.
var streamEnds = "after " + seconds(defaultBounds.stream) + " s, when the service stops, and soon after its key is revoked or its tenant " +
	"moves to another cell; a client then connects again. A comment is sent every " + seconds(defaultBounds.heartbeat) + " s."

// streamResponse returns a response whose body follow sends. The context of
// follow ends when the client disconnects, the stream is bounds.stream old, or
// the program begins to stop. The client then connects again. A stream whose key
// is revoked ends within two heartbeats and the time for which keys are cached,
// and that of a tenant that moves to another cell one heartbeat later. end is
// called once, after follow, or without it.
func (s *service) streamResponse(req *request, follow func(ctx context.Context, events *eventStream), end func()) (response, error) {
	leave, err := s.streams.enter(req.principal.TenantID)
	if err != nil {
		end()
		return response{}, err
	}
	send := func(w http.ResponseWriter) {
		defer leave()
		defer end()
		if req.http.Method == http.MethodHead {
			return
		}
		ctx, cancel := context.WithTimeout(req.http.Context(), s.bounds.stream)
		defer cancel()
		defer s.onStop(cancel)()
		events := &eventStream{
			w: w, control: http.NewResponseController(w), every: s.bounds.heartbeat, last: req.http.Header.Get(lastEventHeader),
			checked: time.Now(), access: s.access(req),
		}
		if events.write("retry: "+strconv.FormatInt(reconnectAfter.Milliseconds(), 10)+"\n\n") == nil {
			follow(ctx, events)
		}
	}
	// A proxy that buffers responses, such as nginx, must not buffer this one.
	return response{status: http.StatusOK, stream: send}.with("Content-Type", eventStreamType).with("X-Accel-Buffering", "no"), nil
}

const (
	lastEventHeader = "Last-Event-ID"
	eventStreamType = "text/event-stream"
)

var lastEventID = &huma.Param{
	Name: lastEventHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
	Description: "The id of the last event that the client received. That event is not sent again.",
}

// eventsOf documents a stream of events whose data is the given body.
type eventsOf struct {
	body  any
	names []any // of the events
}

// media is the media type of the stream, in the form in which huma documents
// streams: a list of events.
func (e eventsOf) media(schemas huma.Registry) map[string]*huma.MediaType {
	t := reflect.TypeOf(e.body)
	text := &huma.Schema{Type: huma.TypeString}
	return map[string]*huma.MediaType{eventStreamType: {Schema: &huma.Schema{
		Type: huma.TypeArray, Description: "Server-sent events. Each item has the fields of one event; data is JSON in one line.",
		Items: &huma.Schema{
			Type: huma.TypeObject, Required: []string{"id", "event", "data"},
			Properties: map[string]*huma.Schema{
				"id": text, "event": {Type: huma.TypeString, Enum: e.names}, "data": schemas.Schema(t, true, t.Name()),
			},
		},
	}}}
}
