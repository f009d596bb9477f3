package ready

import (
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/projections"
)

// snapshotInterval is how many events of a key are folded between two writes.
const snapshotInterval = 1000

// Set is the ready projections.
type Set struct {
	Counters     *projections.Runtime[*Event, Counters, Counters]
	Availability *projections.Runtime[*Event, Availability, Availability]
	Rate         *projections.Runtime[*Event, Rate, Rate]
	Latency      *projections.Runtime[*Event, Latency, LatencyDelta]

	db *pgxpool.Pool
}

// New makes the runtimes of the ready projections.
func New(db *pgxpool.Pool, c projections.Config) (*Set, error) {
	s := &Set{db: db}
	var errs [4]error
	s.Counters, errs[0] = projections.New(db, counters(), c)
	s.Availability, errs[1] = projections.New(db, availability(), c)
	s.Rate, errs[2] = projections.New(db, rate(), c)
	s.Latency, errs[3] = projections.New(db, latency(), c)
	return s, errors.Join(errs[:]...)
}

// Register adds all of them to the feed.
func (s *Set) Register(f *projections.Feed) error {
	for _, r := range []interface {
		Register(f *projections.Feed) error
	}{s.Counters, s.Availability, s.Rate, s.Latency} {
		if err := r.Register(f); err != nil {
			return err
		}
	}
	return nil
}

// AvailabilityName is the name of the projection of availability.
func (s *Set) AvailabilityName() string { return availability().Name }
