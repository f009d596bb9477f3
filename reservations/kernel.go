package reservations

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/isolation"
	"github.com/holdfast/holdfast/internal/pgerr"
)

// Config bounds a kernel. The zero value of a field is its default.
type Config struct {
	// LifetimeMax is how long a hold can last with all its extensions; default 2 hours.
	LifetimeMax time.Duration
	// SweepBatch is how many holds one transaction of a sweep expires at most; default 500.
	SweepBatch int
	// Observe is called as each verb begins: "hold", "commit", "release", "extend", "sweep" or "purge"; for a verb on
	// several holds (HoldAll, CommitAll, ReleaseAll) once for each of them. The function that it returns is called with the
	// verb's result; for a verb in the caller's transaction, which can still be rolled back, that is the result until then.
	// It is where telemetry comes in, and must not block. Default: none.
	Observe func(ctx context.Context, verb string) (done func(error))
}

func (c Config) withDefaults() (Config, error) {
	if c.LifetimeMax == 0 {
		c.LifetimeMax = 2 * time.Hour
	}
	if c.SweepBatch == 0 {
		c.SweepBatch = 500
	}
	if c.Observe == nil {
		c.Observe = func(context.Context, string) func(error) { return func(error) {} }
	}
	if c.LifetimeMax < time.Second || c.SweepBatch < 1 || c.SweepBatch > 10_000 {
		return c, fmt.Errorf("reservation: want lifetime_max (%s) ≥ 1s and 1 ≤ sweep_batch (%d) ≤ 10000", c.LifetimeMax, c.SweepBatch)
	}
	return c, nil
}

// Kernel holds, commits, releases, extends and expires units of one kind of resource, race-free. It is safe for
// concurrent use, in any number of processes.
//
// Holds on one (tenant, kind, key) take turns in the database, whatever their windows, because windows may overlap;
// holds on different keys never wait for each other. A rejection is always a true one: an *InsufficientError says what
// was there when it was this hold's turn.
//
// A verb that begins its own transaction repeats it, up to three times in all, if Postgres ends it to resolve a deadlock
// (SQLSTATE 40P01), and then returns that error. A verb in the caller's transaction (…Tx) returns the error at once: roll
// back and repeat the transaction.
type Kernel[K, W any] struct {
	db       *pgxpool.Pool
	resource Resource[K, W]
	kind     string
	config   Config
	disjoint bool
}

var kindForm = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)

// NewKernel makes a kernel for a resource. The kind is dotted words of lower-case letters, digits and underscores, at
// most 64 characters; "inventory.variant" is taken.
//
// Errors: those, and *SerializationError for a key or a window with fields that JSON does not show.
func NewKernel[K, W any](db *pgxpool.Pool, resource Resource[K, W], config Config) (*Kernel[K, W], error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	kind := resource.Kind()
	switch {
	case !kindForm.MatchString(kind) || len(kind) > 64:
		return nil, fmt.Errorf("reservation: the kind %q is not dotted words of at most 64 characters", kind)
	case kind == "inventory.variant":
		return nil, fmt.Errorf("reservation: the kind %q is package inventory's", kind)
	}
	if err := errors.Join(checkShown("key", reflect.TypeFor[K]()), checkShown("window", reflect.TypeFor[W]())); err != nil {
		return nil, err
	}
	_, disjoint := resource.(interface{ windowsAreDisjoint() })
	return &Kernel[K, W]{db: db, resource: resource, kind: kind, config: config, disjoint: disjoint}, nil
}

// observer is Config.Observe.
type observer func(ctx context.Context, verb string) (done func(error))

// observed runs a verb between the calls of its observers, of which some may be nil. Every verb passes here, so that every
// error begins with the package's prefix.
func observed(ctx context.Context, verb string, observers []observer, run func() error) error {
	done := make([]func(error), 0, len(observers))
	for _, observe := range observers {
		if observe != nil {
			done = append(done, observe(ctx, verb))
		}
	}
	err := prefixed(run())
	for _, tell := range done {
		tell(err)
	}
	return err
}

// prefix is what every error's text begins with.
const prefix = "reservation: "

func prefixed(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), prefix) {
		return err
	}
	return fmt.Errorf(prefix+"%w", err)
}

// attemptsMax is how many transactions a verb begins at most until Postgres ends none of them to resolve a deadlock. One
// deadlock takes deadlock_timeout, a second by default.
const attemptsMax = 3

// deadlockDetected is the SQLSTATE of the transaction that Postgres ended to resolve a deadlock.
const deadlockDetected = "40P01"

// inTx runs fn in a transaction of its own, and again in another one if Postgres ended the first to resolve a deadlock:
// nothing of it happened then. So fn can run several times and has no effects outside its transaction. READ COMMITTED is
// named, because the database's default may be another.
//
// A deadlock is possible although verbs lock reservations in the order of their ids: a hold that comes up short locks what
// is due in turns, key by key and batch by batch, and CommitAll or ReleaseAll of some of it can come in between.
func inTx(ctx context.Context, db *pgxpool.Pool, fn func(tx pgx.Tx) error) (err error) {
	for range attemptsMax {
		err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, fn)
		if pgerr.Code(err) != deadlockDetected {
			return err
		}
	}
	return err
}

// InsufficientError says that a hold was rejected because there was not enough. Nothing was held.
type InsufficientError struct {
	Kind, Key            string
	Requested, Available int64
	Capacity             int64
}

// Error says how much was asked for and how much was there.
func (e *InsufficientError) Error() string {
	return fmt.Sprintf("reservation: insufficient: %d of %s %s requested, %d of %d available", e.Requested, e.Kind, e.Key, e.Available, e.Capacity)
}

var (
	// ErrHandleUsed reports a handle that was used before in this process.
	ErrHandleUsed = errors.New("reservation: the handle was used before")
	// ErrIsolation reports a hold in a transaction at REPEATABLE READ or SERIALIZABLE: its snapshot would be older than the
	// lock, and what it counts would be too. Other packages return the same value.
	ErrIsolation = isolation.ErrLevel
	// ErrInvalid reports an argument that is out of range or missing: a quantity, a TTL, an extension, a reason, a window, a
	// tenant, a handle.
	ErrInvalid = errors.New("reservation: invalid")
)
