package metered

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/migrations"
)

// Job is durable work: what River's client takes, for a tenant, under an
// idempotency key.
type Job struct {
	TenantID uuid.UUID
	// Args are the work's arguments, as for River's client. Their kind has
	// 1–127 characters. They are encoded as a JSON object of at most JobArgsMax
	// bytes that Postgres takes as jsonb (no NUL, no half of a surrogate pair),
	// with numbers of at most 1000 characters and exponents up to ±1000, at
	// most 1000 levels deep.
	Args river.JobArgs
	// InsertOpts are River's, with River's defaults: a zero field takes the
	// value of the arguments' own InsertOpts. A queue is at most 64 lower-case
	// letters, digits, hyphens and underscores. UniqueOpts must be empty,
	// because the idempotency key identifies the command. Metadata is an object
	// of at most JobMetadataMax bytes without a member "metered", which
	// [CommandOf] reads.
	InsertOpts *river.InsertOpts
	// IdempotencyKey is 1–255 characters; empty makes every call a new job.
	IdempotencyKey string
	// Reservations are budgets that the work settles: its worker reads them by
	// [CommandOf].
	Reservations []Reservation
	// Origin is written to the audit row. Its correlation id defaults to the
	// context's.
	Origin audit.Origin
}

// Bounds of a job.
const (
	JobArgsMax     = 256 << 10
	JobMetadataMax = 8 << 10
	kindMax        = 127
	queueMax       = 64
	attemptsMax    = 1000
	priorityMax    = 4
	tagMax         = 255
)

// What River accepts.
var (
	queueForm = regexp.MustCompile(`^[a-z0-9]+([_-][a-z0-9]+)*$`)
	tagForm   = regexp.MustCompile(`^\w[\w-]+\w$`)
)

// work is a job as it is inserted: its arguments encoded, its options complete.
type work struct {
	Job
	kind string
	args json.RawMessage
	opts river.InsertOpts
}

// newWork validates the job and completes it.
func newWork(j Job) (*work, error) {
	if err := validateTenant(j.TenantID); err != nil {
		return nil, err
	}
	w := &work{Job: j}
	if err := w.encode(j.Args); err != nil {
		return nil, err
	}
	w.opts = optionsOf(&j)
	if err := validateOptions(&w.opts); err != nil {
		return nil, err
	}
	for field, text := range map[string]string{
		"idempotency_key": j.IdempotencyKey, "actor_id": j.Origin.Actor.ID, "correlation_id": j.Origin.CorrelationID, "reason": j.Origin.Reason,
	} {
		if text == "" {
			continue
		}
		if err := validateText(field, text, TextMax); err != nil {
			return nil, err
		}
	}
	return w, validateReservations(j.Reservations)
}

// encode sets the arguments that the job is inserted with.
func (w *work) encode(args river.JobArgs) (err error) {
	if args == nil {
		return &InvalidError{Field: "args", Message: "must not be nil"}
	}
	w.Args, w.kind = args, args.Kind()
	if err := validateText("kind", w.kind, kindMax); err != nil {
		return err
	}
	if w.args, err = json.Marshal(args); err != nil {
		return &InvalidError{Field: "args", Message: "must encode as JSON: " + err.Error()}
	}
	return validateObject("args", w.args, JobArgsMax)
}

// validateObject accepts JSON objects that Postgres takes as jsonb.
func validateObject(field string, s json.RawMessage, most int) error {
	if err := validateJSON(field, s, most); err != nil {
		return err
	}
	if !bytes.HasPrefix(bytes.TrimLeft(s, " \t\r\n"), []byte("{")) {
		return &InvalidError{Field: field, Message: "must be a JSON object"}
	}
	return nil
}

// optionsOf returns the options that River would insert the job with.
func optionsOf(j *Job) river.InsertOpts {
	var own, of river.InsertOpts
	if j.InsertOpts != nil {
		own = *j.InsertOpts
	}
	if with, ok := j.Args.(river.JobArgsWithInsertOpts); ok {
		of = with.InsertOpts()
	}
	own.MaxAttempts = cmp.Or(own.MaxAttempts, of.MaxAttempts, river.MaxAttemptsDefault)
	own.Priority = cmp.Or(own.Priority, of.Priority, river.PriorityDefault)
	own.Queue = cmp.Or(own.Queue, of.Queue, river.QueueDefault)
	if own.Tags == nil {
		own.Tags = of.Tags
	}
	if own.ScheduledAt.IsZero() {
		own.ScheduledAt = of.ScheduledAt
	}
	if reflect.ValueOf(own.UniqueOpts).IsZero() {
		own.UniqueOpts = of.UniqueOpts
	}
	return own
}

// validateOptions accepts what River accepts. Anything else would fail after
// the key was claimed.
func validateOptions(o *river.InsertOpts) error {
	wrongTag := func(tag string) bool { return len(tag) > tagMax || !tagForm.MatchString(tag) }
	_, outside := o.ScheduledAt.MarshalText() // as it is in the event
	switch {
	case len(o.Queue) > queueMax || !queueForm.MatchString(o.Queue):
		return &InvalidError{Field: "queue", Message: "must be at most 64 lower-case letters, digits, hyphens and underscores"}
	case o.MaxAttempts < 1 || o.MaxAttempts > attemptsMax:
		return &InvalidError{Field: "max_attempts", Message: fmt.Sprintf("must be between 1 and %d", attemptsMax)}
	case o.Priority < 1 || o.Priority > priorityMax:
		return &InvalidError{Field: "priority", Message: fmt.Sprintf("must be between 1 and %d", priorityMax)}
	case outside != nil:
		return &InvalidError{Field: "scheduled_at", Message: "must lie in the years 0 to 9999"}
	case slices.ContainsFunc(o.Tags, wrongTag):
		return &InvalidError{Field: "tags", Message: "must be 3 to 255 letters, digits, underscores and inner hyphens each"}
	case !reflect.ValueOf(o.UniqueOpts).IsZero():
		return &InvalidError{Field: "unique_opts", Message: "must be empty: the idempotency key identifies the command"}
	}
	return validateMetadata(o.Metadata)
}

// validateMetadata accepts an object without the member that is the reference
// to the command.
func validateMetadata(metadata json.RawMessage) error {
	if len(metadata) == 0 {
		return nil
	}
	if err := validateObject("metadata", metadata, JobMetadataMax); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(metadata, &members) // an object
	if _, taken := members[refMember]; taken {
		return &InvalidError{Field: "metadata", Message: "must not have the member " + refMember}
	}
	return nil
}

// validateReservations accepts what the job's row can hold.
func validateReservations(reservations []Reservation) error {
	if len(reservations) > ChargesMax {
		return &InvalidError{Field: "reservations", Message: fmt.Sprintf("must be at most %d", ChargesMax)}
	}
	for _, r := range reservations {
		if err := validateText("reservations.scope", r.Scope, TextMax); err != nil {
			return err
		}
		if _, err := r.ReservedAt.MarshalText(); err != nil {
			return &InvalidError{Field: "reservations.reserved_at", Message: "must lie in the years 0 to 9999"}
		}
	}
	return nil
}

// fingerprint distinguishes a retry from a reused key. It covers the kind, the
// encoded arguments, and also.
func (w *work) fingerprint(also ...string) []byte {
	sum := sha256.New()
	for _, part := range append([]string{w.kind, string(w.args)}, also...) {
		_ = binary.Write(sum, binary.BigEndian, int64(len(part))) // a hash takes every write
		_, _ = sum.Write([]byte(part))
	}
	return sum.Sum(nil)
}

// CommandRef is the part of a job's row that names the command it belongs to.
type CommandRef struct {
	TenantID     uuid.UUID     `json:"tenant_id"`
	CommandID    uuid.UUID     `json:"command_id"`
	Reservations []Reservation `json:"reservations,omitempty"`
	// CorrelationID is that of the command's origin; its end is recorded under
	// it.
	CorrelationID string `json:"correlation_id,omitempty"`
}

// refMember is the member of a job's metadata that is its CommandRef.
const refMember = "metered"

// CommandOf reads a job's metadata (River's JobRow.Metadata) and returns the
// command that the job belongs to. Refusal: [ErrForeignJob].
func CommandOf(jobMetadata []byte) (CommandRef, error) {
	var m struct {
		Metered *CommandRef `json:"metered"`
	}
	if err := json.Unmarshal(jobMetadata, &m); err != nil {
		return CommandRef{}, fmt.Errorf("read a job's metadata: %w", err)
	}
	if m.Metered == nil {
		return CommandRef{}, ErrForeignJob
	}
	return *m.Metered, nil
}

// metadata is the job's own, with the reference to its command.
func (w *work) metadata(id uuid.UUID) ([]byte, error) {
	members := make(map[string]any, 1)
	if len(w.opts.Metadata) > 0 {
		own := make(map[string]json.RawMessage)
		if err := json.Unmarshal(w.opts.Metadata, &own); err != nil {
			return nil, err
		}
		for name, value := range own {
			members[name] = value
		}
	}
	members[refMember] = CommandRef{w.TenantID, id, w.Reservations, w.Origin.CorrelationID}
	return json.Marshal(members)
}

// JobStore enqueues jobs on River, in the schema "river". Its client only
// inserts: it works no jobs, and takes no part in River's leader election or
// maintenance. It is safe for concurrent use.
type JobStore struct {
	db     *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// notifyEvery is the shortest time between two notifications of one queue's
// workers by one process. Notifications are serialized at COMMIT, so one per
// job would slow the jobs down.
const notifyEvery = 10 * time.Millisecond

// NewJobStore makes a store. The pool is for the verbs without Tx.
func NewJobStore(db *pgxpool.Pool) (*JobStore, error) {
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema:              migrations.RiverSchema,
		FetchCooldown:       notifyEvery,
		FetchPollInterval:   time.Second,
		Logger:              slog.New(slog.DiscardHandler), // it only inserts, and the insert returns errors
		SkipUnknownJobCheck: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the job store: %w", err)
	}
	return &JobStore{db, client}, nil
}
