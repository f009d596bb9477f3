package hot

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// installation is what a detector works on, in memory: what it decides takes effect at once.
type installation struct {
	config   DetectorConfig
	now      time.Time
	paused   bool
	subjects []subject
	busy     map[subjectID]time.Duration // for how long each was busy without a break
}

// pass looks, decides and moves.
func (in *installation) pass(t *rapid.T) []move {
	in.now = in.now.Add(in.config.Every)
	p := pass{since: in.config.Every.Seconds(), now: in.now, paused: in.paused}
	for i := range in.subjects {
		s := &in.subjects[i]
		if s.Rate >= in.config.PromoteRate || s.Waiting >= in.config.PromoteDepth {
			in.busy[s.id()] += in.config.Every
		} else {
			in.busy[s.id()] = 0
		}
	}
	moves, watches := decide(p, in.config, append([]subject(nil), in.subjects...))
	for i := range in.subjects {
		s := &in.subjects[i]
		s.BusySince, s.QuietSince = nil, nil
		for j := range watches {
			if watches[j].id() == s.id() {
				s.BusySince, s.QuietSince = watches[j].BusySince, watches[j].QuietSince
			}
		}
	}
	seen := make(map[subjectID]bool)
	for _, m := range moves {
		if seen[m.subjectID] {
			t.Fatalf("%v is moved twice in one pass", m.subjectID)
		}
		seen[m.subjectID] = true
		in.move(t, m)
	}
	return moves
}

func (in *installation) move(t *rapid.T, m move) {
	for i := range in.subjects {
		s := &in.subjects[i]
		if s.id() != m.subjectID {
			continue
		}
		moved := in.now
		s.MovedAt = &moved
		switch m.action {
		case promoted:
			if s.isHot() || !s.Eligible || in.paused || in.busy[s.id()] < in.config.PromoteAfter {
				t.Fatalf("promoted %+v, busy for %s, paused %t", s, in.busy[s.id()], in.paused)
			}
			if s.Slot != nil && *s.Slot != m.slot {
				t.Fatalf("%s left slot %d and came back to %d", s.VariantID, *s.Slot, m.slot)
			}
			s.State, s.Slot = "hot", &m.slot
		case demoted:
			if !s.isHot() || s.Pinned || *s.Slot != m.slot {
				t.Fatalf("demoted %+v", s)
			}
			s.State = "leaving"
		default:
			t.Fatalf("%s of a variant", m.action)
		}
		return
	}
	t.Fatalf("moved %v, which nobody saw", m.subjectID)
}

// Whatever arrives, the operator says and the lane's state is: a pass moves a variant once at most; only what is eligible
// and was busy for long enough is promoted, pinned ones are left alone, and no more are hot by themselves than may be.
func TestDecideKeepsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		config, err := DetectorConfig{
			VariantsMax: rapid.IntRange(1, 6).Draw(t, "places"), TenantMax: rapid.IntRange(1, 4).Draw(t, "places of a tenant"),
			DemoteAfter: 3 * time.Second,
		}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		in := &installation{config: config, busy: make(map[subjectID]time.Duration), now: time.Unix(0, 0)}
		tenants := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
		for _, tenant := range tenants {
			for i := range 4 {
				in.subjects = append(in.subjects, subject{TenantID: tenant, VariantID: fmt.Sprint("v", i), Eligible: true})
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "passes") {
			in.paused = rapid.IntRange(0, 9).Draw(t, "paused") == 0
			for i := range in.subjects {
				in.subjects[i].change(t)
			}
			in.pass(t)
			own := make(map[uuid.UUID]int)
			for i := range in.subjects {
				if s := &in.subjects[i]; s.isHot() && !s.Pinned {
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

// change lets something happen to a variant: other figures, another wish, or the end of a move.
func (s *subject) change(t *rapid.T) {
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

// Whoever fills the shared stream is diverted, be it one or several alike, and nobody who has no more than its part of it.
func TestFloodsAlike(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting  []int // by tenant, each of which sends as much as a flood
		unseen   int   // that too few of any one tenant wait for to be seen
		diverted int
	}{
		"one":                            {[]int{1100}, 0, 1},
		"one, and as much of others":     {[]int{1000}, 1000, 0},
		"two":                            {[]int{1000, 985}, 15, 2},
		"three":                          {[]int{660, 660, 660}, 20, 3},
		"three, of whom one has little":  {[]int{900, 900, 180}, 20, 2},
		"below the threshold":            {[]int{900, 200}, 0, 0},
		"two below the threshold":        {[]int{600, 600}, 0, 0},
		"many have their part":           {[]int{20, 20, 20, 20}, 1920, 0},
		"two above the threshold, a few": {[]int{1100, 600}, 50, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := DetectorConfig{PromoteAfter: 1}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			now := time.Unix(100, 0)
			before := now.Add(-time.Second)
			subjects := []subject{{Rate: 2000*float64(len(c.waiting)) + 5, Waiting: c.unseen}}
			for _, waiting := range c.waiting {
				subjects = append(subjects, subject{TenantID: uuid.New(), Rate: 2000, Waiting: waiting, BusySince: &before})
				subjects[0].Waiting += waiting
			}
			moves, _ := decide(pass{since: 1, now: now}, config, subjects)
			if len(moves) != c.diverted {
				t.Errorf("%d moves, want %d: %+v", len(moves), c.diverted, moves)
			}
		})
	}
}

// A detector that overload makes late promotes all the same, if later; one that was away for long begins anew.
func TestLatePasses(t *testing.T) {
	t.Parallel()
	for gap, want := range map[time.Duration]int{time.Second: 3, 5 * time.Second: 2, 6 * time.Second: 3, 14 * time.Second: 3, 16 * time.Second: 0} {
		config, err := DetectorConfig{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		p := pass{since: gap.Seconds(), now: time.Unix(0, 0)}
		watched, promotedAt := []subject{{TenantID: uuid.New(), VariantID: "shoe", Rate: 500, Eligible: true}}, 0
		for n := 1; n <= 10 && promotedAt == 0; n++ {
			p.now = p.now.Add(gap)
			var moves []move
			if moves, watched = decide(p, config, watched); len(moves) > 0 {
				promotedAt = n
			}
		}
		if promotedAt != want {
			t.Errorf("with a pass each %s it is promoted by pass %d, want %d", gap, promotedAt, want)
		}
	}
}

// Whatever tenants send and have waiting, and however late passes come: a pass moves a tenant once at most, and only to
// where it is not; nobody is diverted who was not at it for PromoteAfter, passes in time, nor let back who was not quiet for
// DemoteAfter; and nobody who has no neighbours.
func TestDecideKeepsTenantsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		config, err := DetectorConfig{DemoteAfter: 3 * time.Second}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		subjects := make([]subject, 1, 5)
		for range 4 {
			subjects = append(subjects, subject{TenantID: uuid.New()})
		}
		loud, calm := make(map[uuid.UUID]int), make(map[uuid.UUID]int) // passes on end
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 30).Draw(t, "passes") {
			gap := rapid.SampledFrom([]time.Duration{time.Second, time.Second, time.Second, 10 * time.Second, time.Minute}).Draw(t, "gap")
			now = now.Add(gap)
			all := &subjects[0]
			*all = subject{Waiting: rapid.SampledFrom([]int{0, 5, 100}).Draw(t, "unseen")}
			for i := 1; i < len(subjects); i++ {
				s := &subjects[i]
				if rapid.IntRange(0, 3).Draw(t, "other figures") == 0 {
					s.Rate = rapid.SampledFrom([]float64{0, 400, 700, 3000}).Draw(t, "rate")
					s.Waiting = rapid.SampledFrom([]int{0, 10, 600, 1000}).Draw(t, "waiting")
				}
				all.Rate += s.Rate
				all.Waiting += s.Waiting
			}
			for i := 1; i < len(subjects); i++ {
				s := &subjects[i]
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
				count(calm, s.Rate < config.FloodRate/2 && s.isHot())
			}
			moves, watches := decide(pass{since: gap.Seconds(), now: now}, config, append([]subject(nil), subjects...))
			for i := 1; i < len(subjects); i++ {
				s := &subjects[i]
				s.BusySince, s.QuietSince = nil, nil
				for j := range watches {
					if watches[j].id() == s.id() {
						s.BusySince, s.QuietSince = watches[j].BusySince, watches[j].QuietSince
					}
				}
				for _, m := range moves {
					if m.subjectID == s.id() {
						s.moveTenant(t, m, loud[s.TenantID], calm[s.TenantID])
					}
				}
			}
		}
	})
}

// moveTenant makes a move of a tenant that has been loud, or calm, for so many passes.
func (s *subject) moveTenant(t *rapid.T, m move, loud, calm int) {
	switch {
	case m.action == diverted && s.Slot == nil && loud >= 3 && m.slot == aside:
		s.Slot = &m.slot
	case m.action == letBack && s.Slot != nil && calm >= 4:
		s.Slot = nil
	default:
		t.Fatalf("%+v of %+v, loud for %d passes and calm for %d", m, s, loud, calm)
	}
}
