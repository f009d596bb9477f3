package hot

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/lanes"
)

// installation is the state on which a detector decides, in memory. Its
// decisions take effect at once.
type installation struct {
	config     DetectorConfig
	now        time.Time
	paused     bool
	candidates []candidate
	busy       map[candidateID]time.Duration // for how long each has been busy without a break
}

// pass makes one pass: it decides, and applies the moves.
func (in *installation) pass(t *rapid.T) []lanes.Move {
	in.now = in.now.Add(in.config.Every)
	p := pass{since: in.config.Every.Seconds(), now: in.now, paused: in.paused}
	for i := range in.candidates {
		s := &in.candidates[i]
		if s.Rate >= in.config.PromoteRate || s.Waiting >= in.config.PromoteDepth {
			in.busy[s.id()] += in.config.Every
		} else {
			in.busy[s.id()] = 0
		}
	}
	moves, observations := decide(p, in.config, append([]candidate(nil), in.candidates...))
	for i := range in.candidates {
		s := &in.candidates[i]
		s.BusySince, s.QuietSince = nil, nil
		for j := range observations {
			if observations[j].id() == s.id() {
				s.BusySince, s.QuietSince = observations[j].BusySince, observations[j].QuietSince
			}
		}
	}
	seen := make(map[candidateID]bool)
	for _, m := range moves {
		if seen[movedID(m)] {
			t.Fatalf("%v is moved twice in one pass", movedID(m))
		}
		seen[movedID(m)] = true
		in.move(t, m)
	}
	return moves
}

// movedID returns the id of the moved candidate.
// candidateID names a candidate.
type candidateID struct {
	TenantID  uuid.UUID
	VariantID string
}

func (s *candidate) id() candidateID { return candidateID{s.TenantID, s.VariantID} }

func movedID(m lanes.Move) candidateID { return candidateID{m.TenantID, m.VariantID} }

func (in *installation) move(t *rapid.T, m lanes.Move) {
	for i := range in.candidates {
		s := &in.candidates[i]
		if s.id() != movedID(m) {
			continue
		}
		moved := in.now
		s.MovedAt = &moved
		switch m.Action {
		case lanes.Promoted:
			if s.isHot() || !s.Eligible || in.paused || in.busy[s.id()] < in.config.PromoteAfter {
				t.Fatalf("promoted %+v, busy for %s, paused %t", s, in.busy[s.id()], in.paused)
			}
			if s.Slot != nil && *s.Slot != m.Slot {
				t.Fatalf("%s left slot %d and came back to %d", s.VariantID, *s.Slot, m.Slot)
			}
			s.State, s.Slot = "hot", &m.Slot
		case lanes.Demoted:
			if !s.isHot() || s.Pinned || *s.Slot != m.Slot {
				t.Fatalf("demoted %+v", s)
			}
			s.State = "leaving"
		default:
			t.Fatalf("%s of a variant", m.Action)
		}
		return
	}
	t.Fatalf("moved %v, which is not a candidate", movedID(m))
}

// For all signals, stock settings and lane states, a pass moves a variant at
// most once. It promotes only eligible variants that were busy for long enough,
// and does not move pinned ones. It never makes more variants hot than the
// limits allow.
func TestDecideKeepsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		config, err := DetectorConfig{
			VariantsMax: rapid.IntRange(1, 6).Draw(t, "places"), TenantMax: rapid.IntRange(1, 4).Draw(t, "limit per tenant"),
			DemoteAfter: 3 * time.Second,
		}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		in := &installation{config: config, busy: make(map[candidateID]time.Duration), now: time.Unix(0, 0)}
		tenants := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
		for _, tenant := range tenants {
			for i := range 4 {
				in.candidates = append(in.candidates, candidate{TenantID: tenant, VariantID: fmt.Sprint("v", i), Eligible: true})
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "passes") {
			in.paused = rapid.IntRange(0, 9).Draw(t, "paused") == 0
			for i := range in.candidates {
				in.candidates[i].change(t)
			}
			in.pass(t)
			own := make(map[uuid.UUID]int)
			for i := range in.candidates {
				if s := &in.candidates[i]; s.isHot() && !s.Pinned {
					own[s.TenantID]++
					own[uuid.Nil]++
				}
			}
			for tenant, n := range own {
				if n > config.TenantMax && tenant != uuid.Nil || n > config.VariantsMax {
					t.Fatalf("%d variants of %s are hot, want %d and %d in all at most", n, tenant, config.TenantMax, config.VariantsMax)
				}
			}
		}
	})
}

// change draws a change of a variant: other figures, another lane setting of
// its stock, or the end of a move.
func (s *candidate) change(t *rapid.T) {
	if rapid.Bool().Draw(t, "other figures") {
		s.Rate = rapid.SampledFrom([]float64{0, 40, 100, 250, 1000}).Draw(t, "rate")
		s.Waiting = rapid.SampledFrom([]int{0, 0, 0, 499, 500}).Draw(t, "waiting")
	}
	switch rapid.IntRange(0, 19).Draw(t, "event") {
	case 0:
		s.Eligible = !s.Eligible
	case 1:
		if s.isHot() {
			s.Pinned = true
		}
	case 2:
		if s.Pinned {
			s.Pinned, s.State = false, "leaving"
		}
	case 3:
		if s.State == "leaving" {
			s.State, s.Slot, s.MovedAt = "", nil, nil
		}
	}
}

// Tenants that fill the shared stream are diverted, whether it is one tenant or
// several equal ones. A tenant with no more than its share of the stream is not
// diverted.
func TestFloodsAlike(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting  []int // by tenant; each sends as much as a flood
		unseen   int   // of tenants with too few waiting requests to be listed
		diverted int
	}{
		"one":                                {[]int{1100}, 0, 1},
		"one, and the same number of others": {[]int{1000}, 1000, 0},
		"two":                                {[]int{1000, 985}, 15, 2},
		"three":                              {[]int{660, 660, 660}, 20, 3},
		"three, one of them with few":        {[]int{900, 900, 180}, 20, 2},
		"below the threshold":                {[]int{900, 200}, 0, 0},
		"two below the threshold":            {[]int{600, 600}, 0, 0},
		"many with an equal share":           {[]int{20, 20, 20, 20}, 1920, 0},
		"two above the threshold, a few":     {[]int{1100, 600}, 50, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := DetectorConfig{PromoteAfter: 1}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			now := time.Unix(100, 0)
			before := now.Add(-time.Second)
			candidates := []candidate{{Rate: 2000*float64(len(c.waiting)) + 5, Waiting: c.unseen}}
			for _, waiting := range c.waiting {
				candidates = append(candidates, candidate{TenantID: uuid.New(), Rate: 2000, Waiting: waiting, BusySince: &before})
				candidates[0].Waiting += waiting
			}
			moves, _ := decide(pass{since: 1, now: now}, config, candidates)
			if len(moves) != c.diverted {
				t.Errorf("%d moves, want %d: %+v", len(moves), c.diverted, moves)
			}
		})
	}
}

// A detector whose passes are delayed by overload still promotes, but later.
// After a long gap it starts to measure again.
func TestLatePasses(t *testing.T) {
	t.Parallel()
	for gap, want := range map[time.Duration]int{time.Second: 3, 5 * time.Second: 2, 6 * time.Second: 3, 14 * time.Second: 3, 16 * time.Second: 0} {
		config, err := DetectorConfig{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		p := pass{since: gap.Seconds(), now: time.Unix(0, 0)}
		watched, promotedAt := []candidate{{TenantID: uuid.New(), VariantID: "shoe", Rate: 500, Eligible: true}}, 0
		for n := 1; n <= 10 && promotedAt == 0; n++ {
			p.now = p.now.Add(gap)
			var moves []lanes.Move
			if moves, watched = decide(p, config, watched); len(moves) > 0 {
				promotedAt = n
			}
		}
		if promotedAt != want {
			t.Errorf("with a pass each %s it is promoted by pass %d, want %d", gap, promotedAt, want)
		}
	}
}

// Whatever tenants send and have queued, and however late passes are, a pass
// moves a tenant at most once, and only to the other stream. It diverts a
// tenant only if it has flooded for PromoteAfter, in passes that were in time,
// and if it has neighbours. It restores a tenant only if it was quiet for
// DemoteAfter.
func TestDecideKeepsTenantsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		config, err := DetectorConfig{DemoteAfter: 3 * time.Second}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		candidates := make([]candidate, 1, 5)
		for range 4 {
			candidates = append(candidates, candidate{TenantID: uuid.New()})
		}
		loud, quiet := make(map[uuid.UUID]int), make(map[uuid.UUID]int) // consecutive passes
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 30).Draw(t, "passes") {
			gap := rapid.SampledFrom([]time.Duration{time.Second, time.Second, time.Second, 10 * time.Second, time.Minute}).Draw(t, "gap")
			now = now.Add(gap)
			all := &candidates[0]
			*all = candidate{Waiting: rapid.SampledFrom([]int{0, 5, 100}).Draw(t, "unseen")}
			for i := 1; i < len(candidates); i++ {
				s := &candidates[i]
				if rapid.IntRange(0, 3).Draw(t, "other figures") == 0 {
					s.Rate = rapid.SampledFrom([]float64{0, 400, 700, 3000}).Draw(t, "rate")
					s.Waiting = rapid.SampledFrom([]int{0, 10, 600, 1000}).Draw(t, "waiting")
				}
				all.Rate += s.Rate
				all.Waiting += s.Waiting
			}
			for i := 1; i < len(candidates); i++ {
				s := &candidates[i]
				count := func(passes map[uuid.UUID]int, holds bool) {
					switch {
					case !holds:
						passes[s.TenantID] = 0
					case gap > gapMax:
						passes[s.TenantID] = 1
					default:
						passes[s.TenantID]++
					}
				}
				count(loud, s.Rate >= config.FloodRate && s.Waiting > 0 && !s.isHot() && all.Rate > s.Rate)
				count(quiet, s.Rate < config.FloodRate/2 && s.isHot())
			}
			moves, observations := decide(pass{since: gap.Seconds(), now: now}, config, append([]candidate(nil), candidates...))
			for i := 1; i < len(candidates); i++ {
				s := &candidates[i]
				s.BusySince, s.QuietSince = nil, nil
				for j := range observations {
					if observations[j].id() == s.id() {
						s.BusySince, s.QuietSince = observations[j].BusySince, observations[j].QuietSince
					}
				}
				for _, m := range moves {
					if movedID(m) == s.id() {
						s.moveTenant(t, m, loud[s.TenantID], quiet[s.TenantID])
					}
				}
			}
		}
	})
}

// moveTenant checks and applies the move of a tenant that has been loud, or
// quiet, for that many passes.
func (s *candidate) moveTenant(t *rapid.T, m lanes.Move, loud, quiet int) {
	switch {
	case m.Action == lanes.Diverted && s.Slot == nil && loud >= 3 && m.Slot == lanes.DivertedSlot:
		s.Slot = &m.Slot
	case m.Action == lanes.Restored && s.Slot != nil && quiet >= 4:
		s.Slot = nil
	default:
		t.Fatalf("%+v of %+v, loud for %d passes and quiet for %d", m, s, loud, quiet)
	}
}
