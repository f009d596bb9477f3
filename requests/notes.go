package requests

import (
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/metered"
)

// notes are what this process has lately seen of rates, so that who can't be let in is told so without a transaction, and
// holds up nobody's group.
type notes struct {
	mu sync.Mutex
	// busy is until when a rate is taken for locked by somebody who does not come to an end.
	busy map[metered.RateRef]time.Time
	// spent are rates that had too little left when a transaction that has committed looked. They are taken for that while
	// nothing else but time can have given much back.
	spent map[metered.RateRef]spentRate
}

// spentRate is a rate that had not enough left.
type spentRate struct {
	metered.Rate
	metered.Standing
	seen time.Time
}

const (
	// notesMax is how many rates are noted, of either sort.
	notesMax = 10_000
	// spentFor is how long a spent rate is not looked at again, however long it is spent for: somebody may have given it
	// another limit.
	spentFor = time.Second
)

func newNotes() *notes {
	return &notes{busy: make(map[metered.RateRef]time.Time), spent: make(map[metered.RateRef]spentRate)}
}

// after is how things stand at now if nothing was counted since.
func (s *spentRate) after(now time.Time) metered.Standing {
	ago := now.Sub(s.seen)
	return metered.Standing{Remaining: s.Remaining, Wait: s.Wait - ago, Reset: max(s.Reset-ago, 0)}
}

// hold notes that rates are locked.
func (n *notes) hold(rates []metered.RateRef) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.busy, func(_ metered.RateRef, until time.Time) bool { return now.After(until) })
	for _, ref := range rates {
		if len(n.busy) < notesMax {
			n.busy[ref] = now.Add(heldFor)
		}
	}
}

// spend notes those of a refused visit's rates that had not enough left when they were seen.
func (n *notes) spend(tenantID uuid.UUID, rates []metered.Rate, standings []metered.Standing, seen time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, stands := range standings {
		if stands.Wait <= 0 {
			continue
		}
		if len(n.spent) >= notesMax {
			for ref := range n.spent {
				delete(n.spent, ref) // whichever: it is found out again
				break
			}
		}
		n.spent[metered.RateRef{TenantID: tenantID, Scope: rates[i].Scope}] = spentRate{rates[i], stands, seen}
	}
}

// check says why nobody needs to try to be counted in the rates, and how they stand; nil if somebody may. A rate that is
// asked of in another way than it was refused tells nothing.
func (n *notes) check(tenantID uuid.UUID, rates []metered.Rate) ([]metered.Standing, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.busy) == 0 && len(n.spent) == 0 {
		return nil, nil
	}
	now, standings := time.Now(), make([]metered.Standing, len(rates))
	var over *metered.OverRateError
	for i, r := range rates {
		standings[i] = Unasked
		ref := metered.RateRef{TenantID: tenantID, Scope: r.Scope}
		if now.Before(n.busy[ref]) {
			return nil, &RefusedError{Why: WhyBusy, RetryAfter: retrySoonest}
		}
		s, known := n.spent[ref]
		if !known || s.Rate != r {
			continue
		}
		stands := s.after(now)
		if stands.Wait <= 0 || now.Sub(s.seen) > spentFor {
			delete(n.spent, ref)
			continue
		}
		standings[i] = stands
		if over == nil {
			over = &metered.OverRateError{Rate: r, Standing: stands}
		}
	}
	if over == nil {
		return nil, nil
	}
	return standings, over
}
