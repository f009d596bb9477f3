package reservations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
)

// Config bounds a kernel. The zero value of a field is its default.
type Config struct {
	// LifetimeMax is how long a hold can last with all its extensions; default
	// 2 hours.
	LifetimeMax time.Duration
	// SweepBatch is how many holds one transaction of a sweep expires at most;
	// default 500.
	SweepBatch int
	// Observe, for telemetry, is called when a verb begins: "hold", "commit",
	// "release", "extend", "sweep" or "purge"; for a verb on several holds
	// (HoldAll, CommitAll, ReleaseAll) once for each of them. The function that
	// it returns is called with the verb's error. A verb in the caller's
	// transaction is reported before that transaction ends, so it can still be
	// rolled back. Neither may block. Default: none.
	Observe func(ctx context.Context, verb string) (done func(error))
}

func (c Config) withDefaults() (Config, error) {
	c.LifetimeMax = cmp.Or(c.LifetimeMax, 2*time.Hour)
	c.SweepBatch = cmp.Or(c.SweepBatch, 500)
	if c.Observe == nil {
		c.Observe = func(context.Context, string) func(error) { return func(error) {} }
	}
	if c.LifetimeMax < time.Second || c.SweepBatch < 1 || c.SweepBatch > 10_000 {
		return c, fmt.Errorf("%w: want lifetime_max (%s) ≥ 1s and 1 ≤ sweep_batch (%d) ≤ 10000", ErrInvalid, c.LifetimeMax, c.SweepBatch)
	}
	return c, nil
}

// Kernel holds, commits, releases, extends and expires units of one kind of
// resource, race-free. It is safe for concurrent use, in any number of
// processes.
//
// Holds on one (tenant, kind, key) wait for each other in the database,
// whatever their windows, because windows may overlap. Holds on different keys
// never wait for each other. A rejection is always correct: an
// *InsufficientError has the numbers that the hold read under the lock of the
// key.
//
// A verb that begins its own transaction repeats it, up to three times in all,
// if Postgres ends it to resolve a deadlock (SQLSTATE 40P01), and then returns
// that error. A verb in the caller's transaction (…Tx) returns the error at
// once: roll back and repeat the transaction.
type Kernel[K, W any] struct {
	db       *pgxpool.Pool
	resource Resource[K, W]
	kind     string
	config   Config
	disjoint bool
}

var kindForm = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)

// NewKernel makes a kernel for a resource. The kind is dotted words of
// lower-case letters, digits and underscores, at most 64 characters;
// "inventory.variant" is taken.
//
// Errors: ErrInvalid for a config or a kind, for a key or a window with fields
// that JSON does not show, and for a window with another method Interval than
// HeldOnly describes.
func NewKernel[K, W any](db *pgxpool.Pool, resource Resource[K, W], config Config) (*Kernel[K, W], error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	kind := resource.Kind()
	switch {
	case !kindForm.MatchString(kind) || len(kind) > 64:
		return nil, fmt.Errorf("%w: the kind %q is not dotted words of at most 64 characters", ErrInvalid, kind)
	case kind == "inventory.variant":
		return nil, fmt.Errorf("%w: the kind %q is package inventory's", ErrInvalid, kind)
	}
	if err := errors.Join(checkShown("key", reflect.TypeFor[K]()), checkShown("window", reflect.TypeFor[W]()), checkInterval[W]()); err != nil {
		return nil, err
	}
	_, disjoint := resource.(interface{ windowsAreDisjoint() })
	return &Kernel[K, W]{db: db, resource: resource, kind: kind, config: config, disjoint: disjoint}, nil
}

// observer is Config.Observe.
type observer func(ctx context.Context, verb string) (done func(error))

// observed runs a verb between the calls of its observers, of which some may be
// nil. Every verb runs through it, so that every error begins with the
// package's prefix.
func observed(ctx context.Context, verb string, observers []observer, run func() error) error {
	done := make([]func(error), 0, len(observers))
	for _, observe := range observers {
		if observe != nil {
			done = append(done, observe(ctx, verb))
		}
	}
	err := prefixed(run())
	for _, report := range done {
		report(err)
	}
	return err
}

// prefix begins the text of every error.
const prefix = "reservations: "

func prefixed(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), prefix) {
		return err
	}
	return fmt.Errorf(prefix+"%w", err)
}

// attemptsMax is how many transactions a verb begins at most, if Postgres ends
// them to resolve deadlocks. One deadlock takes deadlock_timeout, a second by
// default.
const attemptsMax = 3

// inTx runs fn in tx, or if that is nil in a transaction of db, and again in
// another one if Postgres has ended the first one, without effect, to resolve a
// deadlock. So fn may run several
// times, and must have no effects outside its transaction. It sets READ
// COMMITTED, because the database's default may be another level.
//
// A deadlock is possible although verbs lock reservations in the order of their
// ids: a hold that comes up short locks due holds key by key and batch by
// batch, and CommitAll or ReleaseAll of some of them can run in between.
func inTx(ctx context.Context, db *pgxpool.Pool, tx pgx.Tx, fn func(tx pgx.Tx) error) (err error) {
	if tx != nil {
		return fn(tx)
	}
	for range attemptsMax {
		err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, fn)
		if !pg.IsDeadlock(err) {
			return err
		}
	}
	return err
}

// InsufficientError means that a hold was rejected because too few units were
// available. Nothing was held.
type InsufficientError struct {
	// Key and Window are serialized; Kernel.Decode decodes them.
	Kind, Key, Window    string
	Requested, Available int64
	Capacity             int64
}

// Error has the units that were requested and those that were available.
func (e *InsufficientError) Error() string {
	return fmt.Sprintf("reservations: insufficient: %d of %s %s requested, %d of %d available", e.Requested, e.Kind, e.Key, e.Available, e.Capacity)
}

var (
	// ErrHandleUsed means that the handle was used before in this process.
	ErrHandleUsed = errors.New("reservations: the handle was used before")
	// ErrIsolation means that the transaction of a hold is REPEATABLE READ or
	// SERIALIZABLE: its snapshot, and so its counts, would be older than the
	// lock. Other packages return the same value.
	ErrIsolation = pg.ErrIsolation
	// ErrInvalid means that an argument is out of range or missing, which the
	// text names: a quantity, a TTL, an extension, a reason, a tenant, a handle
	// of another kernel, a key or a window that can't be stored.
	ErrInvalid = errors.New("reservations: invalid")
)

// Actor is the actor and the tenant of a kernel's verb. Every audit row has it.
type Actor struct {
	TenantID uuid.UUID
	audit.Origin
}

// By is the tenant and one of the actors of package audit: User, System, Job or
// Anonymous.
func By(tenantID uuid.UUID, actor audit.Actor) Actor {
	return Actor{TenantID: tenantID, Origin: audit.Origin{Actor: actor}}
}

// WithCorrelation is the actor under a correlation id.
func (a Actor) WithCorrelation(id string) Actor {
	a.CorrelationID = id
	return a
}

// WithReason is the actor with a reason as text.
func (a Actor) WithReason(reason string) Actor {
	a.Reason = reason
	return a
}

// check returns ErrInvalid for the zero tenant, and for a text that can't be
// stored: every text of an actor must be UTF-8 without NUL and at most 1,024
// bytes long.
func (a Actor) check() error {
	if a.TenantID == uuid.Nil {
		return fmt.Errorf("%w: act for no tenant", ErrInvalid)
	}
	for _, text := range []string{a.Actor.ID, a.CorrelationID, a.Reason} {
		if len(text) > keyMax || !isText(text) {
			return fmt.Errorf("%w: act for %.64q, want at most %d bytes, of UTF-8 without NUL", ErrInvalid, text, keyMax)
		}
	}
	return nil
}

// isText reports whether Postgres accepts s as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
