package reservations

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
)

// Actor is on whose behalf, and for which tenant, a verb of the kernel acts. It is carried on every audit row.
type Actor struct {
	TenantID uuid.UUID
	audit.Origin
}

// User acts for a caller known by id.
func User(tenantID uuid.UUID, id string) Actor { return actor(tenantID, audit.User(id)) }

// System acts for nobody in particular.
func System(tenantID uuid.UUID) Actor { return actor(tenantID, audit.System()) }

// Job acts for a scheduled or background job, by name.
func Job(tenantID uuid.UUID, name string) Actor { return actor(tenantID, audit.Job(name)) }

// Anonymous acts for a caller who gave no name.
func Anonymous(tenantID uuid.UUID) Actor { return actor(tenantID, audit.Anonymous()) }

func actor(tenantID uuid.UUID, a audit.Actor) Actor {
	return Actor{TenantID: tenantID, Origin: audit.Origin{Actor: a}}
}

// WithCorrelation is the actor under a correlation id.
func (a Actor) WithCorrelation(id string) Actor {
	a.CorrelationID = id
	return a
}

// WithReason is the actor with a reason in words.
func (a Actor) WithReason(reason string) Actor {
	a.Reason = reason
	return a
}

// check returns ErrInvalid for the zero tenant, and for what can't be written: every text of an actor is UTF-8 without NUL
// and at most KeyMax bytes long.
func (a Actor) check() error {
	if a.TenantID == uuid.Nil {
		return fmt.Errorf("%w: act for no tenant", ErrInvalid)
	}
	for _, text := range []string{a.Actor.ID, a.CorrelationID, a.Reason} {
		if len(text) > KeyMax || !plain(text) {
			return fmt.Errorf("%w: act for %.64q, want at most %d bytes, of UTF-8 without NUL", ErrInvalid, text, KeyMax)
		}
	}
	return nil
}

// plain reports whether Postgres takes s as text.
func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
