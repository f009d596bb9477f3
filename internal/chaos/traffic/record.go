package traffic

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// The rules that the record checks.
const (
	RuleAnswer      = "answers: every call is answered as documented"
	RuleNotLost     = "P2: an acknowledged request exists"
	RuleUnchanged   = "P2: a final answer never changes"
	RuleIdempotent  = "P3: one effect per idempotency key"
	RuleOneEnding   = "P4: a reservation ends once, as it was acknowledged"
	RuleNoOversell  = "P1: no oversell at any moment"
	RuleAnswerFast  = "an add is answered within 15 s"
	RuleRequestKept = "a request has the fields of its call"
	RuleWhole       = "lines: a request holds all its lines or none"
)

// Request is the record of one add to a cart, or of one change of a quantity.
// The record guards its fields that change.
type Request struct {
	Tenant      *Tenant
	Cart        string
	Variant     string
	Quantity    int64    // of all lines together
	Lines       []string // the variants of several lines, one unit of each; then Variant is "/"
	Set         bool     // whether it sets a quantity
	Key         string   // empty: no key, and the request is sent once
	Correlation string

	// Sent is when it was first sent, Acked when it was first acknowledged;
	// zero: never.
	Sent, Acked time.Time
	// ID is the request's id, from its first acknowledgement.
	ID uuid.UUID
	// Final is its first answer as done or failed. Cancelled means that a call
	// reported it cancelled.
	Final     *View
	finalAt   string // the API that answered it
	Cancelled bool
	// Unknown means that it has no key and that its outcome is unknown.
	Unknown bool
}

// Verb is a call that finishes at once and leaves one audit row on each target.
type Verb struct {
	Tenant      *Tenant
	Action      string // the action of its audit rows
	Targets     []uuid.UUID
	Correlation string
	Outcome     Outcome
}

// Outcome is what is known about the effect of a call.
type Outcome int

// The outcomes.
const (
	Unknown Outcome = iota
	Done
	Refused
)

// View is a request in an answer of the API.
type View struct {
	RequestID   uuid.UUID    `json:"request_id"`
	Status      string       `json:"status"`
	Reason      *string      `json:"reason"`
	CartID      string       `json:"cart_id"`
	VariantID   string       `json:"variant_id"`
	Quantity    int64        `json:"quantity"`
	Lane        string       `json:"lane"`
	CreatedAt   time.Time    `json:"created_at"`
	UpdatedAt   time.Time    `json:"updated_at"`
	Reservation *Reservation `json:"reservation"`
	Lines       []Line       `json:"lines"`
}

// Line is what a request holds for one of its lines.
type Line struct {
	VariantID    string        `json:"variant_id"`
	Quantity     int64         `json:"quantity"`
	Held         int64         `json:"held"`
	Reservations []Reservation `json:"reservations"`
}

// whole reports whether a final answer holds all its lines, or none. A digital
// variant, which has a slash, needs no reservation.
func (v *View) whole() bool {
	for i := range v.Lines {
		l, made := &v.Lines[i], int64(0)
		for j := range l.Reservations {
			made += l.Reservations[j].Quantity
		}
		if v.Status == "failed" && l.Held > 0 || v.Status == "done" && made != l.Quantity && !strings.Contains(l.VariantID, "/") {
			return false
		}
	}
	return true
}

// Finished reports whether the status is final.
func (v *View) Finished() bool { return v.Status == "done" || v.Status == "failed" }

// ReasonText is the reason of its failure, or "".
func (v *View) ReasonText() string {
	if v.Reason == nil {
		return ""
	}
	return *v.Reason
}

// String is the answer on one line.
func (v *View) String() string {
	held := "no reservation"
	if h := v.Reservation; h != nil {
		held = fmt.Sprintf("reservation %s %s held at %s", h.ReservationID, h.Status, h.HeldAt.Format(time.RFC3339Nano))
	}
	return fmt.Sprintf("%s %q, %d of %s in %s, lane %s, created %s, updated %s, %s", v.Status, v.ReasonText(), v.Quantity, v.VariantID, v.CartID, v.Lane,
		v.CreatedAt.Format(time.RFC3339Nano), v.UpdatedAt.Format(time.RFC3339Nano), held)
}

// same reports whether a final answer equals a later one, except for later
// changes of the reservation.
func (v *View) same(w *View) bool {
	held := func(v *View) (id uuid.UUID, at time.Time) {
		if v.Reservation != nil {
			id, at = v.Reservation.ReservationID, v.Reservation.HeldAt
		}
		return id, at
	}
	id, at := held(v)
	otherID, otherAt := held(w)
	return v.Status == w.Status && v.ReasonText() == w.ReasonText() && v.CartID == w.CartID && v.VariantID == w.VariantID &&
		v.Quantity == w.Quantity && v.CreatedAt.Equal(w.CreatedAt) && v.UpdatedAt.Equal(w.UpdatedAt) && id == otherID && at.Equal(otherAt)
}

// Reservation is a reservation in an answer of the API.
type Reservation struct {
	ReservationID uuid.UUID  `json:"reservation_id"`
	CartID        string     `json:"cart_id"`
	VariantID     string     `json:"variant_id"`
	Quantity      int64      `json:"quantity"`
	Status        string     `json:"status"`
	HeldAt        time.Time  `json:"held_at"`
	ExpiresAt     time.Time  `json:"expires_at"`
	EndedAt       *time.Time `json:"ended_at"`
}

// StockRef names a variant of a tenant.
type StockRef struct {
	TenantID uuid.UUID
	Variant  string
}

// Record has the answers. It is safe for concurrent use.
type Record struct {
	findings *Findings

	mu        sync.Mutex
	requests  []*Request
	byID      map[uuid.UUID]*Request
	finished  []*Request
	verbs     []*Verb
	deadlines map[uuid.UUID]time.Time
	endings   map[uuid.UUID]string
	adjusted  map[StockRef]int64
	notDone   map[string]string // by the correlation id of a call that was refused, its answer
}

// NewRecord makes an empty record.
func NewRecord(findings *Findings) *Record {
	return &Record{
		findings: findings, byID: make(map[uuid.UUID]*Request), deadlines: make(map[uuid.UUID]time.Time),
		endings: make(map[uuid.UUID]string), adjusted: make(map[StockRef]int64), notDone: make(map[string]string),
	}
}

// send records a request that is about to be sent.
func (r *Record) send(q *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.Sent = time.Now()
	r.requests = append(r.requests, q)
}

// ack records that a request was acknowledged with that id, at that time.
func (r *Record) ack(q *Request, id uuid.UUID, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.byID[id]; other != nil && other != q {
		r.findings.Add(RuleIdempotent, "request %s is the answer to two calls: keys %q and %q", id, other.Key, q.Key)
		return
	}
	if q.ID != uuid.Nil && q.ID != id {
		r.findings.Add(RuleIdempotent, "key %s was answered with request %s and with %s", q.Key, q.ID, id)
		return
	}
	if q.ID == uuid.Nil {
		q.ID, q.Acked = id, at
		r.byID[id] = q
	}
}

// saw records an answer about a request, and compares it with the request and
// with earlier answers.
func (r *Record) saw(q *Request, v *View, where string) {
	if len(q.Lines) > 0 && v.VariantID == "" {
		v.VariantID = q.Variant
	}
	if v.Finished() && (len(v.Lines) != len(q.Lines) || !v.whole()) {
		r.findings.Add(RuleWhole, "request %s for one each of %q is answered by %s as %+v", q.ID, q.Lines, where, *v)
	}
	if v.CartID != q.Cart || v.VariantID != q.Variant || v.Quantity != q.Quantity || v.RequestID != q.ID {
		r.findings.Add(RuleRequestKept, "request %s of cart %s for %d of %s is answered by %s as %+v", q.ID, q.Cart, q.Quantity, q.Variant, where, *v)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case q.Final == nil && v.Finished():
		q.Final, q.finalAt = v, where
		r.finished = append(r.finished, q)
		if v.Reservation != nil {
			r.promise(v.Reservation)
		}
	case q.Final != nil && (!v.Finished() || !q.Final.same(v)):
		r.findings.Add(RuleUnchanged, "request %s was answered by %s as %s, and then by %s as %s", q.ID, q.finalAt, q.Final, where, v)
	}
}

// promise records a deadline that was answered. The caller has locked r.mu.
func (r *Record) promise(h *Reservation) {
	if h.ExpiresAt.After(r.deadlines[h.ReservationID]) {
		r.deadlines[h.ReservationID] = h.ExpiresAt
	}
}

// extended records new deadlines.
func (r *Record) extended(hs []Reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range hs {
		r.promise(&hs[i])
	}
}

// ended records that a reservation was acknowledged as committed or released.
func (r *Record) ended(id uuid.UUID, status string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.endings[id]; before != "" && before != status {
		r.findings.Add(RuleOneEnding, "reservation %s was acknowledged as %s, and as %s", id, before, status)
	}
	r.endings[id] = status
}

// verb records the outcome of a call that finishes at once.
func (r *Record) verb(v *Verb) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verbs = append(r.verbs, v)
}

func (r *Record) adjust(ref StockRef, delta int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adjusted[ref] += delta
}

// refused records a call whose answer means that it had no effect.
func (r *Record) refused(correlation, how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notDone[correlation] = how
}

// cancelled records that a call reported requests as cancelled.
func (r *Record) cancelled(ids []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if q := r.byID[id]; q != nil {
			q.Cancelled = true
		}
	}
}

// Counts returns how many requests were sent, how many were acknowledged, and
// how many were answered as done or failed.
func (r *Record) Counts() (sent, acked, finished int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests), len(r.byID), len(r.finished)
}

// Facts is the complete record.
type Facts struct {
	Requests  []*Request
	Verbs     []*Verb
	Deadlines map[uuid.UUID]time.Time
	Endings   map[uuid.UUID]string
	Adjusted  map[StockRef]int64
	NotDone   map[string]string
}

// Facts returns the record. The traffic must have ended.
func (r *Record) Facts() Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Facts{r.requests, r.verbs, r.deadlines, r.endings, r.adjusted, r.notDone}
}
