package stage

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// template is a kind with its targets and bounds. A target is drawn among those
// that no other fault uses.
type template struct {
	kind     Kind
	targets  []string
	min, max time.Duration
	count    int // the largest number of commits to cut
}

var (
	apis    = []string{"api-1", "api-2"}
	workers = []string{"worker-1", "worker-2"}
	// Programs are the names of the programs that a storm runs.
	Programs = slices.Concat(apis, workers)
	// routes are the targets of a fault on connections: mostly one program's,
	// sometimes all.
	routes = slices.Concat(Programs, []string{All})
)

// templates are used in rounds, each in a new random order, so that each kind
// occurs in every round.
//
// A transaction whose program is frozen or silent for more than five seconds
// loses its locks by idle_in_transaction_session_timeout. The bounds include
// times on both sides of that.
var templates = []template{
	{kind: Kill, targets: apis, min: 0, max: 1500 * time.Millisecond},
	{kind: Kill, targets: workers, min: 0, max: 1500 * time.Millisecond},
	{kind: Kill, targets: workers, min: 0, max: 300 * time.Millisecond},
	{kind: Stop, targets: apis, min: 0, max: 500 * time.Millisecond},
	{kind: Stop, targets: workers, min: 0, max: 500 * time.Millisecond},
	{kind: Freeze, targets: apis, min: 300 * time.Millisecond, max: 7 * time.Second},
	{kind: Freeze, targets: workers, min: 300 * time.Millisecond, max: 8 * time.Second},
	{kind: CutBefore, targets: routes, min: time.Second, max: 2 * time.Second, count: 12},
	{kind: CutMidway, targets: routes, min: time.Second, max: 2 * time.Second, count: 12},
	{kind: CutUnheard, targets: routes, min: time.Second, max: 2 * time.Second, count: 12},
	{kind: Swallow, targets: routes, min: 500 * time.Millisecond, max: 6 * time.Second, count: 3},
	{kind: Reset, targets: routes},
	{kind: Silence, targets: routes, min: 500 * time.Millisecond, max: 8 * time.Second},
	{kind: Slow, targets: routes, min: time.Second, max: 3 * time.Second},
	{kind: RestartFast, targets: []string{Server}, min: 0, max: 1500 * time.Millisecond},
	{kind: RestartCrash, targets: []string{Server}, min: 0, max: 1500 * time.Millisecond},
	{kind: KillBackend, targets: []string{Server}},
	{kind: EndSessions, targets: []string{Server}},
	{kind: LockStock, targets: []string{Server}, min: 500 * time.Millisecond, max: 3 * time.Second},
	{kind: LockRows, targets: []string{Server}, min: time.Second, max: 4 * time.Second},
	{kind: LockRows, targets: []string{Server}, min: time.Second, max: 4 * time.Second},
	{kind: Sweeps, targets: []string{Server}, min: 3 * time.Second, max: 3 * time.Second},
}

const (
	warmUp = 1500 * time.Millisecond
	minGap = 150 * time.Millisecond
	gapMax = 1350 * time.Millisecond
	// quiet is the pause after each round. It is long enough that every
	// recovery ends in it, and that no fault explains an error near its end.
	quiet = 4 * time.Second
	// longSilence is how long one API is without its network, once in each of
	// the longer storms.
	longSilence = 25 * time.Second
	longStorm   = 90 * time.Second
)

// Plan returns the faults of a storm of the given length, in the order in which
// they begin. The same seed and length give the same plan. Every fault ends
// before the storm.
func Plan(seed uint64, length time.Duration) (plan []Fault) {
	random := rand.New(rand.NewPCG(seed, 0x686f6c64)) //nolint:gosec // a plan must be repeatable, not secret
	busy := map[string]time.Duration{}
	if length >= longStorm {
		f := Fault{At: length / 3, Kind: Silence, Target: apis[random.IntN(len(apis))], For: longSilence}
		plan = append(plan, f)
	}
	for at := warmUp; at < length; at += quiet {
		for round := shuffled(random); len(round) > 0; {
			i := next(round, at, busy)
			at = max(at, round[i].earliest(busy))
			if f, ok := instantiate(random, round[i], at, length, busy, plan); ok {
				plan = append(plan, f)
				at += minGap + time.Duration(random.Int64N(int64(gapMax-minGap)))
			}
			round = slices.Delete(round, i, i+1)
		}
	}
	slices.SortStableFunc(plan, func(a, b Fault) int { return int(a.At - b.At) })
	return plan
}

// Drawn reports whether a Plan has faults of the kind.
func Drawn(kind Kind) bool {
	return slices.ContainsFunc(templates, func(t template) bool { return t.kind == kind })
}

func shuffled(random *rand.Rand) []template {
	round := slices.Clone(templates)
	random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
	return round
}

// next returns the index of the first template with a target that is free at
// that moment, else of the template whose target is free soonest.
func next(round []template, at time.Duration, busy map[string]time.Duration) (soonest int) {
	for i := range round {
		until := round[i].earliest(busy)
		if until <= at {
			return i
		}
		if until < round[soonest].earliest(busy) {
			soonest = i
		}
	}
	return soonest
}

// earliest is the time from which one of the template's targets is free.
func (c template) earliest(busy map[string]time.Duration) time.Duration {
	earliest := time.Duration(math.MaxInt64)
	for _, target := range c.targets {
		until := time.Duration(0)
		for _, place := range (Fault{Kind: c.kind, Target: target}).places() {
			until = max(until, busy[place])
		}
		earliest = min(earliest, until)
	}
	return earliest
}

// instantiate makes a fault of a template. It returns false if every target is
// busy, or the fault would outlast the storm.
func instantiate(random *rand.Rand, c template, at, length time.Duration, busy map[string]time.Duration, planned []Fault) (Fault, bool) {
	f := Fault{At: at, Kind: c.kind, For: c.min}
	if c.max > c.min {
		f.For += time.Duration(random.Int64N(int64(c.max - c.min)))
	}
	if c.count > 0 {
		f.Count = 1 + random.IntN(c.count)
	}
	first := random.IntN(len(c.targets))
	for i := range c.targets {
		f.Target = c.targets[(first+i)%len(c.targets)]
		if f.end() < length && free(f, busy, planned) {
			for _, place := range f.places() {
				busy[place] = f.end()
			}
			return f, true
		}
	}
	return Fault{}, false
}

// rollouts is how often a rollout replaces each program.
const rollouts = 3

// Rollout is the plan of a deployment, three times: each program is stopped by
// SIGTERM and started again, an API and a worker in turn, evenly over the
// length.
func Rollout(length time.Duration) (plan []Fault) {
	order := []string{apis[0], workers[0], apis[1], workers[1]}
	gap := (length - warmUp) / time.Duration(rollouts*len(order)+1)
	for i := range rollouts * len(order) {
		plan = append(plan, Fault{At: warmUp + time.Duration(i)*gap, Kind: Stop, Target: order[i%len(order)], For: 100 * time.Millisecond})
	}
	return plan
}

// Upgrade is the plan of a new version: a quarter of the length without a
// change, then the migration, and from the middle on each program is stopped by
// SIGTERM and started again, an API and a worker in turn.
func Upgrade(length time.Duration) (plan []Fault) {
	plan = append(plan, Fault{At: length / 4, Kind: Migrate, Target: Server, For: min(length/6, 10*time.Second)})
	for i, name := range []string{apis[0], workers[0], apis[1], workers[1]} {
		plan = append(plan, Fault{At: length/2 + time.Duration(i)*length/12, Kind: Stop, Target: name, For: 100 * time.Millisecond})
	}
	return plan
}

// movesEvery is the time between the beginnings of two moves.
const movesEvery = 7 * time.Second

// Moves are the moves of tenants during a storm over several cells.
func Moves(length time.Duration) (plan []Fault) {
	for at := warmUp; at < length; at += movesEvery {
		plan = append(plan, Fault{At: at, Kind: Move, Target: Server})
	}
	return plan
}

// end is the time from which the target can have another fault. It includes a
// moment for a program to start or for Postgres to recover.
func (f Fault) end() time.Duration {
	after := 200 * time.Millisecond
	switch f.Kind {
	case Kill, Stop:
		after = 3 * time.Second
	case RestartFast, RestartCrash, KillBackend:
		after = 4 * time.Second
	default:
	}
	return f.At + f.For + after
}

// places are the targets that the fault uses exclusively.
func (f Fault) places() (places []string) {
	switch {
	case f.Kind.OnWire() && f.Target == All:
		for _, p := range Programs {
			places = append(places, "wire "+p)
		}
	case f.Kind.OnWire():
		places = []string{"wire " + f.Target}
	case f.Kind.OnRows(), f.Kind == Sweeps:
		places = []string{string(f.Kind)}
	default:
		places = []string{f.Target}
	}
	return places
}

func free(f Fault, busy map[string]time.Duration, planned []Fault) bool {
	for _, place := range f.places() {
		if busy[place] > f.At {
			return false
		}
	}
	// A program waits 15 s for its database when it starts. No other fault hits
	// a program during its long silence.
	return !slices.ContainsFunc(planned, func(p Fault) bool {
		return p.For == longSilence && f.Hits(p.Target) && f.At < p.end() && f.end() > p.At
	})
}
