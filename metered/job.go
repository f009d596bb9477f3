package metered

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/migrations"
)

// Job is durable work to be started.
type Job struct {
	TenantID uuid.UUID
	// Queue is River's: lower-case letters, digits, hyphens and underscores, at most 64. Kind names the worker, 1–127
	// characters.
	Queue, Kind string
	// Payload is the job's arguments: a JSON object of at most JobPayloadMax bytes that Postgres takes as jsonb (no NUL,
	// no half of a surrogate pair), with numbers of at most 1000 characters and exponents up to ±1000, at most 1000 deep.
	// {} if empty.
	Payload json.RawMessage
	// IdempotencyKey is 1–255 characters; empty makes every call a new job.
	IdempotencyKey string
	// MaxAttempts is how often the job is tried, 1 to 1000; 0: 25. Priority is 1, the first, to 4; 0: 1.
	MaxAttempts, Priority int
	// ScheduledAt is when the work may begin, up to the year 9999; the zero value is at once.
	ScheduledAt time.Time
	// Reservations are budgets that the work settles: its worker finds them by [CommandOf].
	Reservations []Reservation
	// Origin goes to the audit row; without a correlation id, with the context's.
	Origin audit.Origin
}

// Bounds of a job.
const (
	JobPayloadMax   = 256 << 10
	kindMax         = 127
	queueMax        = 64
	attemptsMax     = 1000
	attemptsDefault = 25
	priorityMax     = 4
)

var queueForm = regexp.MustCompile(`^[a-z0-9]+([_-][a-z0-9]+)*$`)

// validate checks the job and fills in its defaults.
func (j *Job) validate() error {
	if len(j.Queue) > queueMax || !queueForm.MatchString(j.Queue) {
		return &InvalidError{Field: "queue", Message: "must be at most 64 lower-case letters, digits, hyphens and underscores"}
	}
	if err := validateText("kind", j.Kind, kindMax); err != nil {
		return err
	}
	if len(j.Payload) == 0 {
		j.Payload = json.RawMessage(`{}`)
	}
	if err := validateJSON("payload", j.Payload, JobPayloadMax); err != nil {
		return err
	}
	if !bytes.HasPrefix(bytes.TrimLeft(j.Payload, " \t\r\n"), []byte("{")) {
		return &InvalidError{Field: "payload", Message: "must be a JSON object"}
	}
	for field, text := range map[string]string{
		"idempotency_key": j.IdempotencyKey, "actor_id": j.Origin.Actor.ID, "correlation_id": j.Origin.CorrelationID, "reason": j.Origin.Reason,
	} {
		if text == "" {
			continue
		}
		if err := validateText(field, text, TextMax); err != nil {
			return err
		}
	}
	if err := j.validateReservations(); err != nil {
		return err
	}
	if _, err := j.ScheduledAt.MarshalText(); err != nil { // as it stands in the event
		return &InvalidError{Field: "scheduled_at", Message: "must lie in the years 0 to 9999"}
	}
	if j.MaxAttempts == 0 {
		j.MaxAttempts = attemptsDefault
	}
	if j.Priority == 0 {
		j.Priority = 1
	}
	switch {
	case j.MaxAttempts < 1 || j.MaxAttempts > attemptsMax:
		return &InvalidError{Field: "max_attempts", Message: fmt.Sprintf("must be between 1 and %d", attemptsMax)}
	case j.Priority < 1 || j.Priority > priorityMax:
		return &InvalidError{Field: "priority", Message: fmt.Sprintf("must be between 1 and %d", priorityMax)}
	}
	return nil
}

// validateReservations accepts what the job's row, which names them, can hold.
func (j *Job) validateReservations() error {
	if len(j.Reservations) > ChargesMax {
		return &InvalidError{Field: "reservations", Message: fmt.Sprintf("must be at most %d", ChargesMax)}
	}
	for _, r := range j.Reservations {
		if err := validateText("reservations.scope", r.Scope, TextMax); err != nil {
			return err
		}
		if _, err := r.ReservedAt.MarshalText(); err != nil {
			return &InvalidError{Field: "reservations.reserved_at", Message: "must lie in the years 0 to 9999"}
		}
	}
	return nil
}

// fingerprint tells a retry from a reused key: it is of the kind, of the payload without the spaces between its tokens,
// and of what else is given.
func (j *Job) fingerprint(also ...string) []byte {
	var compact bytes.Buffer
	_ = json.Compact(&compact, j.Payload) // valid
	sum := sha256.New()
	for _, part := range append([]string{j.Kind, compact.String()}, also...) {
		_ = binary.Write(sum, binary.BigEndian, int64(len(part))) // a hash takes every write
		_, _ = sum.Write([]byte(part))
	}
	return sum.Sum(nil)
}

// CommandRef is what a job's row says of the command that started it.
type CommandRef struct {
	TenantID     uuid.UUID     `json:"tenant_id"`
	CommandID    uuid.UUID     `json:"command_id"`
	Reservations []Reservation `json:"reservations,omitempty"`
}

// metadata is where the reference stands in a job's row.
type metadata struct {
	Metered *CommandRef `json:"metered"`
}

// CommandOf reads a job's metadata (River's JobRow.Metadata): the command whose work it is. The error says that the job
// was not enqueued by this package.
func CommandOf(jobMetadata []byte) (CommandRef, error) {
	var m metadata
	if err := json.Unmarshal(jobMetadata, &m); err != nil {
		return CommandRef{}, fmt.Errorf("read a job's metadata: %w", err)
	}
	if m.Metered == nil {
		return CommandRef{}, fmt.Errorf("metered: the job is no command's")
	}
	return *m.Metered, nil
}

// JobStore enqueues jobs on River, in the schema "river". Its client only inserts: it works nothing, leads nothing and
// discards nothing. It is safe for concurrent use.
type JobStore struct {
	db     *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// notifyEvery is how often workers of one queue are told of new jobs at most, by one process. A notify waits for its turn
// at COMMIT, so one for each job would slow the jobs down.
const notifyEvery = 10 * time.Millisecond

// NewJobStore makes a store. The pool is for the verbs without Tx.
func NewJobStore(db *pgxpool.Pool) (*JobStore, error) {
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema:              migrations.RiverSchema,
		FetchCooldown:       notifyEvery,
		FetchPollInterval:   time.Second,
		Logger:              slog.New(slog.DiscardHandler), // it only inserts, and errors come back from the insert
		SkipUnknownJobCheck: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the job store: %w", err)
	}
	return &JobStore{db, client}, nil
}

// jobArgs is a job as River takes it.
type jobArgs struct {
	kind    string
	payload json.RawMessage
}

func (a jobArgs) Kind() string { return a.kind }

func (a jobArgs) MarshalJSON() ([]byte, error) { return a.payload, nil }
