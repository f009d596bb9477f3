package reservations

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config bounds a kernel. The zero value of a field is its default.
type Config struct {
	// LifetimeMax is how long a hold can last with all its extensions; default 2 hours.
	LifetimeMax time.Duration
	// SweepBatch is how many holds one transaction of a sweep expires at most; default 500.
	SweepBatch int
	// Observe is told of every verb as it begins: "hold", "commit", "release", "extend" or "sweep", of HoldAll's for each
	// of its parts. What it returns is told how the verb went; of a verb in the caller's transaction, which can still be
	// rolled back, how it went until then. It is where telemetry comes in, and must not block. Default: nobody is told.
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
type Kernel[K, W any] struct {
	db       *pgxpool.Pool
	resource Resource[K, W]
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
	return &Kernel[K, W]{db: db, resource: resource, config: config, disjoint: disjoint}, nil
}

// observe runs a verb and tells the observer.
func (k *Kernel[K, W]) observe(ctx context.Context, verb string, run func() error) error {
	done := k.config.Observe(ctx, verb)
	err := run()
	done(err)
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
	// ErrHandleUsed says that a handle was used before in this process.
	ErrHandleUsed = errors.New("reservation: the handle was used before")
	// ErrIsolation says that a hold was asked for in a transaction that is not READ COMMITTED: its snapshot would be older
	// than the lock, and what it counts would be too.
	ErrIsolation = errors.New("reservation: holds need a READ COMMITTED transaction")
	// ErrInvalid says that a quantity, a TTL or an extension is out of range.
	ErrInvalid = errors.New("reservation: invalid")
)

// Handle names a hold that is still to be ended. It is used once: Commit, Release and Extend take it, and a second use in
// this process is ErrHandleUsed. (Extend gives a new one.) Across processes the database answers *ConflictError.
//
// A verb that fails gives the handle back, also when it is the COMMIT that fails: then the fate is unknown, and the verb
// may be tried again. A verb that joined the caller's transaction keeps the handle, also if that is rolled back:
// Kernel.Handle makes a new one.
type Handle struct {
	reservation Reservation
	used        chan struct{} // holds one token until the handle is used
}

func newHandle(r Reservation) *Handle {
	h := &Handle{reservation: r, used: make(chan struct{}, 1)}
	h.used <- struct{}{}
	return h
}

// ID is the reservation's.
func (h *Handle) ID() uuid.UUID { return h.reservation.ReservationID }

// ExpiresAt is the hold's deadline, on the database's clock.
func (h *Handle) ExpiresAt() time.Time { return h.reservation.ExpiresAt }

// Reservation is the hold as it was when the handle was made.
func (h *Handle) Reservation() Reservation { return h.reservation }

// use takes the handle for one verb, and gives it back if the verb fails.
func (h *Handle) use(verb func() error) error {
	select {
	case <-h.used:
	default:
		return ErrHandleUsed
	}
	err := verb()
	if err != nil {
		h.used <- struct{}{}
	}
	return err
}
