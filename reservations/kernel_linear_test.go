package reservations_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/reservations"
)

// did is an operation of a history: the verb, the window, the units and the
// result.
type did struct {
	verb     string
	window   span
	units    int64
	rejected bool
	// available and capacity are the numbers of a rejection.
	available, capacity int64
}

// hours is the number of hours that the windows of a history cover.
const hours = 4

// account is the state of a key: units per hour. A key without windows has one
// hour.
type account struct {
	capacity   int64
	held, sold [hours]int64
}

func (a *account) add(to *[hours]int64, window span, units int64) {
	for hour := window.From; hour < window.To; hour++ {
		to[hour] += units
	}
}

// left returns the capacity of a window and the units of it that are available.
// If leave is true, sold units are taken out of the capacity; else they still
// count.
func (a *account) left(window span, leave bool) (capacity, available int64) {
	var held, sold, both int64
	for hour := window.From; hour < window.To; hour++ {
		held, sold, both = max(held, a.held[hour]), max(sold, a.sold[hour]), max(both, a.held[hour]+a.sold[hour])
	}
	if leave {
		return a.capacity - sold, a.capacity - sold - held
	}
	return a.capacity, a.capacity - both
}

// accounting is the porcupine model of a key.
func accounting(capacity int64, leave bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return account{capacity: capacity} },
		Step: func(state, input, output any) (bool, any) {
			a, in, out := state.(account), input.(did), output.(did)
			switch in.verb {
			case "hold":
				capacity, available := a.left(in.window, leave)
				if out.rejected {
					return in.units > available && out.available == max(available, 0) && out.capacity == capacity, a
				}
				a.add(&a.held, in.window, in.units)
				return in.units <= available, a
			case "commit":
				a.add(&a.held, in.window, -in.units)
				a.add(&a.sold, in.window, in.units)
			case "release":
				a.add(&a.held, in.window, -in.units)
			case "restock":
				a.capacity += in.units
			}
			return true, a
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

// ledger runs verbs on one key and keeps their history.
type ledger struct {
	*house
	windows bool
	hold    func(did) (*reservations.Handle, error)
	commit  func(did, *reservations.Handle) error
	restock func() error // nil if the capacity is constant

	mu      sync.Mutex
	start   time.Time
	history []porcupine.Operation
}

// record runs an operation and adds it to the history.
func (l *ledger) record(client int, in did, run func() (did, error)) {
	called := time.Since(l.start).Nanoseconds()
	out, err := run()
	returned := time.Since(l.start).Nanoseconds()
	if err != nil {
		l.TB.Error(in.verb, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, porcupine.Operation{ClientId: client, Input: in, Call: called, Output: out, Return: returned})
}

// client runs a number of random verbs, one after the other.
func (l *ledger) client(client, steps int, random *rand.Rand) {
	type held struct {
		did
		handle *reservations.Handle
	}
	var mine []held
	for range steps {
		switch {
		case l.restock != nil && random.IntN(12) == 0:
			l.record(client, did{verb: "restock", units: 1}, func() (did, error) { return did{}, l.restock() })
		case len(mine) == 0 || random.IntN(2) == 0:
			in := did{verb: "hold", window: span{0, 1}, units: 1 + random.Int64N(3)}
			if l.windows {
				in.window.From = random.IntN(hours)
				in.window.To = in.window.From + 1 + random.IntN(hours-in.window.From)
			}
			l.record(client, in, func() (out did, err error) {
				handle, err := l.hold(in)
				if insufficient, ok := errors.AsType[*reservations.InsufficientError](err); ok {
					return did{rejected: true, available: insufficient.Available, capacity: insufficient.Capacity}, nil
				}
				if err == nil {
					mine = append(mine, held{in, handle})
				}
				return did{}, err
			})
		default:
			m := mine[0]
			mine = mine[1:]
			in := m.did
			in.verb = []string{"release", "commit", "commit"}[random.IntN(3)]
			l.record(client, in, func() (did, error) {
				if in.verb == "commit" {
					return did{}, l.commit(in, m.handle)
				}
				return did{}, failure(reservations.ReleaseAll(l.TB.Context(), l.DB, l.by, []*reservations.Handle{m.handle}, reservations.Abandoned))
			})
		}
	}
}

// booked are rooms with a table of bookings: a commit lowers the capacity of
// its hours.
type booked struct {
	reservations.HeldOnly[string, span]
	rooms int64
}

func (b booked) Capacity(ctx context.Context, tx pgx.Tx, _ uuid.UUID, key string, window span) (left int64, err error) {
	const leftSQL = `
		SELECT $2 - coalesce(max(taken), 0)::bigint
		FROM (SELECT sum(b.units) AS taken FROM generate_series($3::int, $4::int - 1) AS hour
		      JOIN bookings b ON b.key = $1 AND b.starts <= hour AND hour < b.ends
		      GROUP BY hour) AS hourly`
	err = tx.QueryRow(ctx, leftSQL, key, b.rooms, window.From, window.To).Scan(&left)
	return left, err
}

// ledgers make a ledger of a key for each way of counting. leave is true if
// committed units are taken out of the capacity.
var ledgers = map[string]struct {
	leave bool
	make  func(s *shop, key string, capacity int64) *ledger
}{
	"HeldAndCommitted": {false, func(s *shop, key string, capacity int64) *ledger {
		k := kernelOf(s.house, seats{"venue.seat", capacity}, reservations.Config{})
		return &ledger{
			hold: func(in did) (*reservations.Handle, error) {
				return k.Hold(s.TB.Context(), s.by, key, all, reservations.HoldOpts{Quantity: in.units, TTL: time.Minute})
			},
			commit: func(_ did, h *reservations.Handle) error { return failure(k.Commit(s.TB.Context(), s.by, h)) },
		}
	}},
	"HeldOnly": {true, func(s *shop, key string, capacity int64) *ledger {
		s.put(key, capacity)
		return &ledger{
			hold:   func(in did) (*reservations.Handle, error) { return s.hold(key, in.units, time.Minute) },
			commit: func(_ did, h *reservations.Handle) error { return s.sell(key, h) },
			restock: func() error {
				_, err := s.DB.Exec(s.TB.Context(), `UPDATE goods SET stock = stock + 1 WHERE name = $1`, key)
				return err
			},
		}
	}},
	"PeakHeldAndCommitted": {false, func(s *shop, key string, capacity int64) *ledger {
		k := kernelOf(s.house, rooms{"house.room", capacity}, reservations.Config{})
		return &ledger{
			windows: true,
			hold: func(in did) (*reservations.Handle, error) {
				return k.Hold(s.TB.Context(), s.by, key, in.window, reservations.HoldOpts{Quantity: in.units, TTL: time.Minute})
			},
			commit: func(_ did, h *reservations.Handle) error { return failure(k.Commit(s.TB.Context(), s.by, h)) },
		}
	}},
	"PeakHeldOnly": {true, func(s *shop, key string, capacity int64) *ledger {
		k := kernelOf(s.house, booked{"house.booked", capacity}, reservations.Config{})
		return &ledger{
			windows: true,
			hold: func(in did) (*reservations.Handle, error) {
				return k.Hold(s.TB.Context(), s.by, key, in.window, reservations.HoldOpts{Quantity: in.units, TTL: time.Minute})
			},
			commit: func(in did, h *reservations.Handle) error {
				return s.in(func(tx pgx.Tx) error {
					const bookSQL = `INSERT INTO bookings VALUES ($1, $2, $3, $4)`
					if _, err := tx.Exec(s.TB.Context(), bookSQL, key, in.window.From, in.window.To, in.units); err != nil {
						return err
					}
					return failure(k.CommitTx(s.TB.Context(), tx, s.by, h))
				})
			},
		}
	}},
}

// Many concurrent calls on one key are linearizable: holds, rejections with
// their numbers, releases, commits. Committed units still count, or are taken
// out of the capacity in the transaction of the commit. Keys have overlapping
// windows, or none.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	const capacity, clients, steps, rounds = 8, 6, 12, 12
	for name, c := range ledgers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, func(*shop, int64) {})
			s.hasty()
			s.Exec(`CREATE TABLE bookings (key text, starts int, ends int, units bigint)`)
			for round := range rounds {
				l := c.make(s, fmt.Sprint("key ", round), capacity)
				l.house, l.start = s.house, time.Now()
				var callers sync.WaitGroup
				for client := range clients {
					callers.Go(func() { l.client(client, steps, rand.New(rand.NewPCG(uint64(round), uint64(client)))) })
				}
				callers.Wait()
				if result := porcupine.CheckOperationsTimeout(accounting(capacity, c.leave), l.history, 20*time.Second); result != porcupine.Ok {
					t.Fatalf("round %d: %s, of %d operations: %+v", round, result, len(l.history), l.history)
				}
			}
		})
	}
}

// The check can fail: it rejects a history with two holds of the last unit, and
// one with a wrong rejection.
func TestLinearizableCheckFails(t *testing.T) {
	t.Parallel()
	hour := span{0, 1}
	held := porcupine.Operation{ClientId: 0, Input: did{verb: "hold", window: hour, units: 1}, Call: 0, Output: did{}, Return: 10}
	for name, out := range map[string]did{
		"oversold":                    {},
		"rejected with wrong numbers": {rejected: true, available: 1, capacity: 1},
	} {
		second := porcupine.Operation{ClientId: 1, Input: did{verb: "hold", window: hour, units: 1}, Call: 5, Output: out, Return: 15}
		if porcupine.CheckOperations(accounting(1, true), []porcupine.Operation{held, second}) {
			t.Errorf("the check accepts a history that is %s", name)
		}
	}
}
