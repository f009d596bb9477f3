package httpapi

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// shirtState is a state of the projection, with a number of reserved units.
func shirtState(reserved string) string {
	return `{"variant_id":"shirt","stock":5,"reserved":` + reserved + `,"available":0,"tracked":true,"backorder":false}`
}

// TestStockEvents follows a variant in two processes: first the state, of the
// stock where the projection has none, then each change, of the own tenant.
func TestStockEvents(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s, second := openShop(t, db, holdfast.Config{}), openShop(t, db, holdfast.Config{})
	s.stock("shirt", `{"stock":5}`)
	other, _ := s.newTenant("other")
	streams := []*streamed{s.stream(t, "/v1/stocks/shirt/events"), second.stream(t, "/v1/stocks/shirt/events")}
	const none = `{"variant_id":"shirt","stock":5,"reserved":0,"available":5,"tracked":true,"backorder":false}`
	for _, st := range streams {
		st.next() // retry
		if e := st.next(); e != (event{id: "0", name: "snapshot", data: none}) {
			t.Errorf("%d, the first event is %+v", st.status, e)
		}
	}
	s.setAvailability(other, 1, shirtState("4"))
	s.setAvailability(s.tenant, 1, shirtState("1"))
	s.setAvailability(s.tenant, 2, shirtState("2"))
	for _, st := range streams {
		e := st.next()
		if e == (event{id: "1", name: "delta", data: shirtState("1")}) {
			e = st.next()
		}
		if e.id != "2" || e.data != shirtState("2") { // a delta, or a snapshot if it was read meanwhile
			t.Errorf("after two changes: %+v", e)
		}
	}

	s.key = s.newKey(s.tenant, tenants.ScopeOps) // any key
	again := s.stream(t, "/v1/stocks/shirt/events", lastEventHeader, "1")
	again.next()
	if e := again.next(); e != (event{id: "2", name: live.Snapshot, data: shirtState("2")}) {
		t.Errorf("a client that missed a change receives %+v", e)
	}
	same := s.stream(t, "/v1/stocks/shirt/events", lastEventHeader, "2")
	same.next()
	s.setAvailability(s.tenant, 3, shirtState("3"))
	if e := same.next(); e.id != "3" || e.data != shirtState("3") {
		t.Errorf("a client that has the state receives %+v first", e)
	}
}

// TestStockEventsEnd checks which streams are refused, and that none remains
// counted.
func TestStockEventsEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5}`)
	s.refused(notFound, "GET", "/v1/stocks/unknown/events", "")
	if r := s.call(200, "HEAD", "/v1/stocks/shirt/events", ""); len(r.body) != 0 {
		t.Errorf("HEAD has the body %q", r.body)
	}
	s.service.bounds.stream, s.service.bounds.heartbeat = 0, 0
	whole := s.call(200, "GET", "/v1/stocks/shirt/events", "")
	if !strings.HasPrefix(string(whole.body), "retry: 1000\n\n") {
		t.Errorf("an old stream has the body %q", whole.body)
	}
	pgtest.Until(t, "no stream is open", func() bool { return s.openStreams() == 0 })
	s.service.streams.byTenant = map[uuid.UUID]int{s.tenant.TenantID: tenantStreamsMax}
	s.refused(overLimit, "GET", "/v1/stocks/shirt/events", "")
	_, s.key = s.newTenant("neighbour")
	s.refused(notFound, "GET", "/v1/stocks/shirt/events", "")
}
