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
	p := pass{since: in.config.Every.Seconds(), now: in.now, paused: in.paused, slots: []slotLoad{{slot: 0}, {slot: 1}, {slot: 2}}}
	for i := range in.subjects {
		s := &in.subjects[i]
		if s.VariantID != "" && s.Slot != nil {
			p.slots[*s.Slot].variants++
		}
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
