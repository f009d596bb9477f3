package audit

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// ActorKind says what sort of party made a transition.
type ActorKind string

// The four kinds of actor.
const (
	KindUser      ActorKind = "user"
	KindSystem    ActorKind = "system"
	KindJob       ActorKind = "job"
	KindAnonymous ActorKind = "anonymous"
)

// Actor is who made a transition. The zero value is the system.
type Actor struct {
	Kind ActorKind
	// ID names the actor within its kind: a key's prefix, a job's name. Empty for the system and for anonymous.
	ID string
}

// User is a caller known by id: a person or an API key.
func User(id string) Actor { return Actor{Kind: KindUser, ID: id} }

// System is Holdfast itself, acting on nobody's behalf.
func System() Actor { return Actor{Kind: KindSystem} }

// Job is a scheduled or background job, by name.
func Job(name string) Actor { return Actor{Kind: KindJob, ID: name} }

// Anonymous is a caller who gave no name.
func Anonymous() Actor { return Actor{Kind: KindAnonymous} }

// Origin is who asked for a transition, why, and under which correlation id. Every verb carries one.
type Origin struct {
	Actor         Actor
	CorrelationID string
	Reason        string
}

// Entry is one transition to be recorded.
type Entry struct {
	TenantID uuid.UUID
	// TargetID is the row that changed: a reservation's or a request's id, or TargetOf a target whose key is text.
	TargetID uuid.UUID
	// Action is the target's kind and the transition, joined by a dot: "reservation.held".
	Action string
	Origin
	// Before is the target's state ahead of the transition, nil if it did not exist; After what it became.
	Before, After json.RawMessage
}

// Record is an entry as it stands in the log.
type Record struct {
	Entry
	// AuditID grows in the order of what happened to one target; between targets it means nothing.
	AuditID   int64
	CreatedAt time.Time
}

// TargetOf names a target whose own key is text (a variant's stock, a lane) by the UUIDv5 of its tenant, kind and key.
func TargetOf(tenantID uuid.UUID, kind, key string) uuid.UUID {
	return uuid.NewSHA1(tenantID, []byte(kind+"\x00"+key))
}
