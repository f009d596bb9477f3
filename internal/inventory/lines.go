package inventory

import (
	"maps"

	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// decideSet decides the set of requests that begins at first, and returns where
// the next request is. All lines are held or none; or, if the set is partial,
// each as far as there are units. If one of them depends on a row that another
// transaction has locked, the whole set is left undecided.
func (d *decision) decideSet(requests []HoldRequest, first int, in *inputs) (next int) {
	set := requests[first].Set
	for next = first; next < len(requests) && requests[next].Set == set; next++ {
		d.outcomes[next] = NotNeeded
	}
	before := d.save(requests[first:next])
	isShort := false
	for i := first; i < next; {
		end := i
		for end < next && requests[end].Line == requests[i].Line {
			end++
		}
		decideLine := d.decideLine
		if requests[i].Kits > 0 {
			decideLine = d.decideKits
		}
		short, undecided := decideLine(requests[i:end], d.outcomes[i:end], in)
		if undecided != "" {
			d.restore(before)
			for j := first; j < next; j++ {
				d.outcomes[j] = undecided
			}
			return next
		}
		isShort = isShort || short
		i = end
	}
	if isShort && !requests[first].Partial {
		d.restore(before)
		for i := first; i < next; i++ {
			if !d.outcomes[i].Rejected() {
				d.outcomes[i] = NotNeeded
			}
		}
	}
	return next
}

// decideLine decides the requests of one line, which serve it in their order.
// One request of a line that is short has the outcome of a rejection, unless the
// line is partial and has some units. undecided is the outcome of a request that
// is left undecided, or "".
func (d *decision) decideLine(line []HoldRequest, outcomes []Outcome, in *inputs) (short bool, undecided Outcome) {
	left := line[0].Quantity
	why, at := UnknownVariant, 0 // what is known of the first variant that is known
	for i := range line {
		request := line[i]
		request.Quantity = left
		outcome := d.decideOne(&request, in)
		if outcome == OutOfStock && (request.Split || request.Partial && i == len(line)-1) {
			if request.Quantity = d.most(&request, in); request.Quantity > 0 {
				outcome = d.decideOne(&request, in)
			}
		}
		switch {
		case !outcome.Decided():
			return false, outcome
		case outcome == Untracked:
			outcomes[i] = outcome
			return false, ""
		case outcome == Granted:
			outcomes[i] = outcome
			if left -= request.Quantity; left == 0 {
				return false, ""
			}
			why, at = OutOfStock, i
		case outcome != UnknownVariant && why == UnknownVariant:
			why, at = outcome, i
		}
	}
	if outcomes[at] != Granted || !line[0].Partial { // else it keeps what it got
		outcomes[at] = why
	}
	return true, ""
}

// decideKits decides the requests of a line of kits, which are its parts: all
// kits are held or none; or, if the line is partial, as many whole kits as there
// are. The results are those of decideLine.
func (d *decision) decideKits(parts []HoldRequest, outcomes []Outcome, in *inputs) (short bool, undecided Outcome) {
	before := d.save(parts)
	why, undecided := d.tryKits(parts, parts[0].Kits, outcomes, in)
	if undecided != "" || why == "" {
		return false, undecided
	}
	d.restore(before)
	if parts[0].Partial && why == OutOfStock {
		if kits := d.mostKits(parts, in); kits > 0 {
			partial := make([]Outcome, len(parts))
			lacking, undecided := d.tryKits(parts, kits, partial, in)
			switch {
			case undecided != "":
				return false, undecided
			case lacking == "":
				copy(outcomes, partial)
				return true, ""
			}
			d.restore(before)
		}
	}
	for i, outcome := range outcomes {
		if !outcome.Rejected() {
			outcomes[i] = NotNeeded
		}
	}
	return true, ""
}

// tryKits decides the parts of that many kits. why is the first rejection, "" if
// there is none. The holds of one line of kits end together.
func (d *decision) tryKits(parts []HoldRequest, kits int64, outcomes []Outcome, in *inputs) (why, undecided Outcome) {
	first := len(d.holds)
	for i := range parts {
		request := parts[i]
		request.Quantity = request.Quantity / request.Kits * kits
		outcomes[i] = d.decideOne(&request, in)
		switch {
		case !outcomes[i].Decided():
			return "", outcomes[i]
		case outcomes[i].Rejected() && why == "":
			why = outcomes[i]
		}
	}
	if made := d.holds[first:]; len(made) > 0 {
		deadline := made[0].ExpiresAt
		for i := range made {
			deadline = earlier(deadline, made[i].ExpiresAt)
		}
		for i := range made {
			made[i].ExpiresAt = deadline
		}
	}
	return why, ""
}

// mostKits returns how many whole kits are free.
func (d *decision) mostKits(parts []HoldRequest, in *inputs) int64 {
	kits := parts[0].Kits
	for i := range parts {
		request := &parts[i]
		c := in.counters[Ref{request.TenantID, request.VariantID}]
		if c == nil {
			return 0
		}
		if c.Tracked && c.bounded() {
			kits = min(kits, d.most(request, in)/(request.Quantity/request.Kits))
		}
	}
	return kits
}

// most returns how many units a request that came up short would get, if it
// took any units and fewer than it asks for.
func (d *decision) most(request *HoldRequest, in *inputs) int64 {
	if request.isParticular() {
		return 0
	}
	c := in.counters[request.source()]
	return min(max(d.free(request, c, in), 0), request.Quantity)
}

// savedSet is what a set may change of a decision.
type savedSet struct {
	holds     int
	reserved  map[Ref]demand
	cartHolds map[reservationrows.HolderKey][]reservations.Reservation
	bought    bought
}

func (d *decision) save(set []HoldRequest) savedSet {
	s := savedSet{
		holds: len(d.holds), reserved: make(map[Ref]demand), cartHolds: make(map[reservationrows.HolderKey][]reservations.Reservation),
		bought: maps.Clone(d.bought),
	}
	for i := range set {
		ref, key := set[i].source(), holderKey(&set[i])
		if demand, known := d.reserved[ref]; known {
			s.reserved[ref] = demand
		}
		if held, known := d.cartHolds[key]; known {
			s.cartHolds[key] = held
		}
	}
	return s
}

// restore undoes what a set has held since it was saved.
func (d *decision) restore(s savedSet) {
	for _, hold := range d.holds[s.holds:] {
		ref := sourceOfHold(&hold.Reservation)
		key := reservationrows.HolderKeyOf(&hold.Reservation)
		if pool := d.pools[ref]; pool != nil {
			pool.give(hold.UnitIDs)
		}
		delete(d.reserved, ref)
		if _, followed := d.cartHolds[key]; followed {
			d.cartHolds[key] = s.cartHolds[key]
		}
	}
	d.holds, d.bought = d.holds[:s.holds], maps.Clone(s.bought)
	maps.Copy(d.reserved, s.reserved)
}
