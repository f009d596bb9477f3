package reservations_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast/holdfast/reservations"
)

// did is an operation of a history: the verb, how many units it is about, and what it said.
type did struct {
	verb      string
	units     int64
	available int64 // of a hold that was rejected
	rejected  bool
}

// counter is a kernel's key as one number, the units taken: what a sequence of verbs may do to it.
func counter(capacity int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			taken, in, out := state.(int64), input.(did), output.(did)
			switch {
			case in.verb == "hold" && out.rejected:
				return taken+in.units > capacity && out.available == capacity-taken, taken
			case in.verb == "hold":
				return taken+in.units <= capacity, taken + in.units
			case in.verb == "release", in.verb == "commit":
				return taken >= in.units, taken - in.units // committed units have left the capacity
			default:
				return true, taken
			}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
}

// What many at once are told about one key could have been said one after the other, each in its time: holds, rejections
// with their numbers, releases, commits, extensions.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	const capacity, clients, steps = 5, 6, 12
	h := newHouse(t)
	h.hasty()
	k := kernelOf(h, desks{HeldOnly: "test.unit", capacity: capacity}, reservations.Config{})
	for round := range 12 {
		key := fmt.Sprint("key ", round)
		var mu sync.Mutex
		var history []porcupine.Operation
		start := time.Now()
		record := func(client int, in did, run func() did) {
			called := time.Since(start).Nanoseconds()
			out := run()
			mu.Lock()
			defer mu.Unlock()
			history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: called, Output: out, Return: time.Since(start).Nanoseconds()})
		}
		var callers sync.WaitGroup
		for client := range clients {
			callers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(round), uint64(client)))
				var mine []*reservations.Handle
				for range steps {
					if len(mine) == 0 || random.IntN(2) == 0 {
						in := did{verb: "hold", units: 1 + random.Int64N(3)}
						record(client, in, func() did {
							handle, err := k.Hold(t.Context(), h.by, deskAsk{Key: key, Quantity: in.units, TTL: time.Minute})
							insufficient, ok := errors.AsType[*reservations.InsufficientError](err)
							switch {
							case ok:
								return did{rejected: true, available: insufficient.Available}
							case err != nil:
								t.Error(err)
							default:
								mine = append(mine, handle)
							}
							return did{}
						})
						continue
					}
					handle := mine[0]
					mine = mine[1:]
					in := did{verb: []string{"release", "commit", "extend"}[random.IntN(3)], units: handle.Reservation().Quantity}
					record(client, in, func() did {
						var err error
						switch in.verb {
						case "release":
							err = k.Release(t.Context(), h.by, handle, reservations.Abandoned)
						case "commit":
							err = k.Commit(t.Context(), h.by, handle)
						default:
							if handle, err = k.Extend(t.Context(), h.by, handle, time.Minute); err == nil {
								mine = append(mine, handle)
							}
						}
						if err != nil {
							t.Error(in.verb, err)
						}
						return did{}
					})
				}
			})
		}
		callers.Wait()
		if result := porcupine.CheckOperationsTimeout(counter(capacity), history, 20*time.Second); result != porcupine.Ok {
			t.Fatalf("round %d: %s, of %d operations: %+v", round, result, len(history), history)
		}
	}
}

// The check itself can fail: a history in which two held the last unit is refused.
func TestLinearizableCheckFails(t *testing.T) {
	t.Parallel()
	history := []porcupine.Operation{
		{ClientId: 0, Input: did{verb: "hold", units: 1}, Call: 0, Output: did{}, Return: 10},
		{ClientId: 1, Input: did{verb: "hold", units: 1}, Call: 5, Output: did{}, Return: 15},
	}
	if porcupine.CheckOperations(counter(1), history) {
		t.Error("an oversold history passed")
	}
}
