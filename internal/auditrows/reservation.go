package auditrows

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Reservation is a reservation after a transition. Its status is not among the
// fields, because the action implies it.
type Reservation struct {
	ResourceKind, ResourceKey, HolderID string
	// ResourceWindow is JSON, empty for a resource without windows.
	ResourceWindow string
	// Quantity is in units, without those that were returned.
	Quantity int64
	// ExpiresAt is the deadline, in microseconds.
	ExpiresAt time.Time
	// ReleaseReason is empty unless it was released or expired.
	ReleaseReason string
	// UnitIDs are the units with their own identity, as a JSON array; empty for
	// counted units.
	UnitIDs string
	// CheckoutID is the zero id outside of a checkout.
	CheckoutID uuid.UUID
	// Before is a JSON object of the members that were different ahead of the
	// transition, null for one that was absent. Empty if none was.
	Before json.RawMessage
}

const (
	prefix   = "reservation."
	held     = prefix + "held" // has no state before it
	extended = prefix + "extended"
	resized  = prefix + "resized"
	moved    = prefix + "moved"
	returned = prefix + "returned"
)

// status is the status after an action: the action's own name, except where it
// leaves the status.
func status(action string) string {
	switch action {
	case extended, resized, moved:
		return "held"
	case returned:
		return "committed"
	}
	return strings.TrimPrefix(action, prefix)
}

// States returns the JSON of the reservation ahead of the action and after it,
// with the members in the order of jsonb. before is nil if the action made it. If
// Before cannot be read, before is what it has, and there is an error.
func (r *Reservation) States(action string) (before, after json.RawMessage, err error) {
	after = r.append(make([]byte, 0, 256), status(action))
	if action == held {
		return nil, after, nil
	}
	was := *r
	was.ReleaseReason = ""
	if len(r.Before) > 0 {
		if err := was.restore(r.Before); err != nil {
			return r.Before, after, fmt.Errorf("the state before %s: %w", action, err)
		}
	}
	before = was.append(make([]byte, 0, 256), statusBefore(action))
	return before, after, nil
}

// statusBefore is the status ahead of an action.
func statusBefore(action string) string {
	if action == returned {
		return "committed"
	}
	return "held"
}

// restore sets the members of an object of differences.
func (r *Reservation) restore(differences json.RawMessage) error {
	members := struct {
		HolderID   string           `json:"holder_id"`
		Quantity   int64            `json:"quantity"`
		ExpiresAt  time.Time        `json:"expires_at"`
		UnitIDs    *json.RawMessage `json:"unit_ids"`
		CheckoutID *uuid.UUID       `json:"checkout_id"`
	}{HolderID: r.HolderID, Quantity: r.Quantity, ExpiresAt: r.ExpiresAt}
	if r.UnitIDs != "" {
		units := json.RawMessage(r.UnitIDs)
		members.UnitIDs = &units
	}
	if r.CheckoutID != uuid.Nil {
		checkout := r.CheckoutID
		members.CheckoutID = &checkout
	}
	if err := json.Unmarshal(differences, &members); err != nil {
		return err
	}
	r.HolderID, r.Quantity, r.ExpiresAt, r.UnitIDs, r.CheckoutID = members.HolderID, members.Quantity, members.ExpiresAt, "", uuid.Nil
	if members.UnitIDs != nil {
		r.UnitIDs = string(*members.UnitIDs)
	}
	if members.CheckoutID != nil {
		r.CheckoutID = *members.CheckoutID
	}
	return nil
}

// append appends the state as JSON.
func (r *Reservation) append(b []byte, status string) []byte {
	b = append(append(b, `{"status":"`...), status...)
	b = append(b, `","quantity":`...)
	b = strconv.AppendInt(b, r.Quantity, 10)
	if r.UnitIDs != "" {
		b = append(append(b, `,"unit_ids":`...), r.UnitIDs...)
	}
	b = appendMember(b, "holder_id", r.HolderID)
	b = append(b, `,"expires_at":"`...)
	b = r.ExpiresAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	if r.CheckoutID != uuid.Nil {
		b = appendMember(b, "checkout_id", r.CheckoutID.String())
	}
	b = appendMember(b, "resource_key", r.ResourceKey)
	b = appendMember(b, "resource_kind", r.ResourceKind)
	if r.ReleaseReason != "" {
		b = appendMember(b, "release_reason", r.ReleaseReason)
	}
	if r.ResourceWindow != "" {
		b = append(append(b, `,"resource_window":`...), r.ResourceWindow...)
	}
	return append(b, '}')
}

func appendMember(b []byte, name, value string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendText(b, value)
}

// AppendTexts appends a JSON array of strings.
func AppendTexts(b []byte, texts []string) []byte {
	b = append(b, '[')
	for i, s := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, s)
	}
	return append(b, ']')
}

// appendText appends s as a JSON string. Most texts need no escapes.
func appendText(b []byte, s string) []byte {
	if !strings.ContainsFunc(s, isEscaped) {
		return append(append(append(b, '"'), s...), '"')
	}
	quoted, err := json.Marshal(s)
	if err != nil { // a string always marshals
		panic(err)
	}
	return append(b, quoted...)
}

// isEscaped reports whether encoding/json might write c in another way.
func isEscaped(c rune) bool {
	return c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&'
}
