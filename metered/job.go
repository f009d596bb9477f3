package metered

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Job is durable work: what River's client takes, for a tenant, under an
// idempotency key.
type Job struct {
	TenantID uuid.UUID
	// Args are the work's arguments, as for River's client. Their kind has
	// 1–127 characters. They are encoded as a JSON object of at most 256 KiB
	// that Postgres takes as jsonb (no NUL, no half of a surrogate pair), with
	// numbers of at most 1000 characters and exponents up to ±1000, at most
	// 1000 levels deep.
	Args river.JobArgs
	// InsertOpts are River's, with River's defaults: a zero field takes the
	// value of the arguments' own InsertOpts. A queue is at most 64 lower-case
	// letters, digits, hyphens and underscores. UniqueOpts must be empty,
	// because the idempotency key identifies the command. Metadata is an object
	// of at most 8 KiB without a member "metered", which
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
	jobArgsMax     = 256 << 10
	jobMetadataMax = 8 << 10
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

// newWork validates the job and completes it, with the correlation id of the
// context if it has none.
func newWork(ctx context.Context, j Job) (*work, error) {
	j.Origin.CorrelationID = cmp.Or(j.Origin.CorrelationID, telemetry.Correlation(ctx))
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
		if err := validateText(field, text, textMax); err != nil {
			return nil, err
		}
	}
	return w, validateReservations(j.Reservations)
}

// encode sets the arguments that the job is inserted with.
func (w *work) encode(args river.JobArgs) (err error) {
	if args == nil {
		return invalidField("args", "must not be nil")
	}
	w.Args, w.kind = args, args.Kind()
	if err := validateText("kind", w.kind, kindMax); err != nil {
		return err
	}
	if w.args, err = json.Marshal(args); err != nil {
		return invalidField("args", "must encode as JSON: %v", err)
	}
	return validateObject("args", w.args, jobArgsMax)
}

// validateObject accepts JSON objects that Postgres takes as jsonb.
func validateObject(field string, s json.RawMessage, most int) error {
	if err := validateJSON(field, s, most); err != nil {
		return err
	}
	if !bytes.HasPrefix(bytes.TrimLeft(s, " \t\r\n"), []byte("{")) {
		return invalidField(field, "must be a JSON object")
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
		return invalidField("queue", "must be at most 64 lower-case letters, digits, hyphens and underscores")
	case o.MaxAttempts < 1 || o.MaxAttempts > attemptsMax:
		return invalidField("max_attempts", "must be between 1 and %d", attemptsMax)
	case o.Priority < 1 || o.Priority > priorityMax:
		return invalidField("priority", "must be between 1 and %d", priorityMax)
	case outside != nil:
		return invalidField("scheduled_at", "must lie in the years 0 to 9999")
	case slices.ContainsFunc(o.Tags, wrongTag):
		return invalidField("tags", "must be 3 to 255 letters, digits, underscores and inner hyphens each")
	case !reflect.ValueOf(o.UniqueOpts).IsZero():
		return invalidField("unique_opts", "must be empty: the idempotency key identifies the command")
	}
	return validateMetadata(o.Metadata)
}

// validateMetadata accepts an object without the member that is the reference
// to the command.
func validateMetadata(metadata json.RawMessage) error {
	if len(metadata) == 0 {
		return nil
	}
	if err := validateObject("metadata", metadata, jobMetadataMax); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(metadata, &members) // an object
	if _, taken := members[refMember]; taken {
		return invalidField("metadata", "must not have the member %s", refMember)
	}
	return nil
}

// validateReservations accepts what the job's row can hold.
func validateReservations(reservations []Reservation) error {
	if len(reservations) > chargesMax {
		return invalidField("reservations", "must be at most %d", chargesMax)
	}
	for _, r := range reservations {
		if err := validateText("reservations.scope", r.Scope, textMax); err != nil {
			return err
		}
		if _, err := r.ReservedAt.MarshalText(); err != nil {
			return invalidField("reservations.reserved_at", "must lie in the years 0 to 9999")
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
// command that the job belongs to. Refusal: [ErrUnknown].
func CommandOf(jobMetadata []byte) (CommandRef, error) {
	var m struct {
		Metered *CommandRef `json:"metered"`
	}
	if err := json.Unmarshal(jobMetadata, &m); err != nil {
		return CommandRef{}, fmt.Errorf("read a job's metadata: %w", err)
	}
	if m.Metered == nil {
		return CommandRef{}, errForeignJob
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
