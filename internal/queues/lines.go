package queues

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// A request of several lines is queued in the normal lane. If none of its
// variants is hot, a batch decides all its lines together, under the locks of
// all their stocks, and inserts a part for each reservation that it makes, and
// for each line that came up short.
//
// Otherwise it is scattered: it becomes processing, and its parts are queued in
// the streams of their variants, which decide them like any request, so no
// stream waits for another. The transaction that decides the last part counts
// it, and the request is then completed, or its other holds are released, by an
// isolated retry: the process that decided the part runs it at once, and if that
// process has ended, the next tick of any does.

// severalLines are the requests of a batch of which some have several lines, as
// the hold requests that they became.
type severalLines struct {
	first []int                    // index of the first hold request, by request
	parts []requestrows.Submission // by hold request, the part that it is; zero for a request of one variant
}

// set returns the hold requests of a request of several lines.
func (s *severalLines) set(r *requests.Request, set int) (asks []inventory.HoldRequest) {
	for place := range r.Lines.Items {
		line := &r.Lines.Items[place]
		for _, needed := range needs(line) {
			part := requestrows.PartOf(r, place, needed.VariantID, int64(needed.Quantity))
			s.parts = append(s.parts, part)
			ask := holdRequest(&requests.Request{
				TenantID: r.TenantID, RequestID: part.RequestID, CartID: r.CartID, VariantID: part.VariantID, Quantity: part.Quantity, Units: line.Units,
				KitID: line.KitID, ActorID: r.ActorID, CorrelationID: r.CorrelationID, CustomerID: r.CustomerID,
			})
			ask.Set, ask.Line, ask.Split, ask.Partial = set, place, line.Split, r.Lines.Partial
			if line.KitID != "" {
				ask.Kits = int64(line.Quantity)
			}
			asks = append(asks, ask)
		}
	}
	return asks
}

// needs returns the variants of a line with their units: the parts of its kits,
// or each variant with all units.
func needs(line *requests.Line) []requests.KitPart {
	if line.KitID != "" {
		return requestrows.KitParts(line)
	}
	variants := requestrows.Variants(line)
	all := make([]requests.KitPart, len(variants))
	for i, variant := range variants {
		all[i] = requests.KitPart{VariantID: variant, Quantity: line.Quantity}
	}
	return all
}

// end returns where the hold requests of the request with that index end.
func (s *severalLines) end(i int) int {
	if i+1 < len(s.first) {
		return s.first[i+1]
	}
	return len(s.parts)
}

// outcomes returns the outcome of each request.
func (s *severalLines) outcomes(holding *inventory.Holding) []inventory.Outcome {
	outcomes := make([]inventory.Outcome, len(s.first))
	for i, first := range s.first {
		outcomes[i] = holding.Outcomes[first]
		if s.parts[first].ParentID != uuid.Nil {
			outcomes[i] = outcomeOf(holding.Outcomes[first:s.end(i)])
		}
	}
	return outcomes
}

// outcomeOf returns the outcome of a set: undecided, granted if something is
// held, untracked if nothing needs to be, or the first rejection. Of a set that
// is not partial, nothing is granted if there is a rejection.
func outcomeOf(set []inventory.Outcome) inventory.Outcome {
	rejection, untracked := inventory.Outcome(""), false
	for _, outcome := range set {
		switch {
		case !outcome.Decided(), outcome == inventory.Granted:
			return outcome
		case outcome == inventory.Untracked:
			untracked = true
		case outcome.Rejected() && rejection == "":
			rejection = outcome
		}
	}
	if untracked || rejection == "" {
		return inventory.Untracked
	}
	return rejection
}

// queueParts adds to b the parts of the requests that were decided.
func (s *severalLines) queueParts(b *pgx.Batch, holding *inventory.Holding) {
	held := make(map[uuid.UUID]int64)
	for _, r := range holding.Made() {
		held[r.ReservationID] = r.Quantity
	}
	var parts []requestrows.Submission
	var reasons []requests.Reason
	put := func(part requestrows.Submission, quantity int64, reason requests.Reason) {
		part.Quantity = int32(quantity)
		parts, reasons = append(parts, part), append(reasons, reason)
	}
	left := make(map[lineOf]int64)
	for i, part := range s.parts {
		if part.ParentID == uuid.Nil {
			continue
		}
		line := lineOf{part.ParentID, part.Line, ""}
		if part.KitID != "" {
			line.part = part.VariantID
		}
		if _, known := left[line]; !known {
			left[line] = int64(part.Quantity)
		}
		switch outcome := holding.Outcomes[i]; {
		case outcome == inventory.Granted:
			put(part, held[part.RequestID], "")
			left[line] -= held[part.RequestID]
		case outcome == inventory.Untracked && part.KitID != "":
			put(part, s.ofKits(i, held), "")
		case outcome == inventory.Untracked:
			put(part, left[line], "")
			left[line] = 0
		case outcome.Rejected():
			put(part, left[line], requests.Reason(outcome))
			left[line] = 0
		}
	}
	requestrows.QueueDecidedParts(b, parts, reasons, holding.Now)
}

// ofKits returns how many units of an untracked part are in the kits of which
// units of another part are held, or in all kits if no part is tracked.
func (s *severalLines) ofKits(i int, held map[uuid.UUID]int64) int64 {
	part := &s.parts[i]
	for j := range s.parts {
		other := &s.parts[j]
		if n, holds := held[other.RequestID]; holds && other.ParentID == part.ParentID && other.Line == part.Line {
			return int64(part.Quantity) * n / int64(other.Quantity)
		}
	}
	return int64(part.Quantity)
}

// lineOf is a line of a request, or a part of a kit of the line.
type lineOf struct {
	requestID uuid.UUID
	line      int16
	part      string
}

// hotSQL returns the places of the variants that are hot, or on their way to or
// from the hot lane.
const hotSQL = `
SELECT wanted.place
FROM unnest($1::uuid[], $2::text[], $3::integer[]) AS wanted (tenant_id, variant_id, place)
JOIN hot_variants h USING (tenant_id, variant_id)`

// scatteredOf returns which of the requests have a variant that is hot, or parts
// that were scattered before, by their indexes.
func scatteredOf(ctx context.Context, tx pgx.Tx, rs []requests.Request) (scattered map[int]bool, err error) {
	var tenants [][16]byte
	var variants []string
	var places []int
	for i := range rs {
		r := &rs[i]
		if r.Lines == nil {
			continue
		}
		for j := range r.Lines.Items {
			for _, variant := range requestrows.Variants(&r.Lines.Items[j]) {
				tenants, variants, places = append(tenants, r.TenantID), append(variants, variant), append(places, i)
			}
		}
	}
	if len(places) == 0 {
		return nil, nil
	}
	hot, err := pg.Select(ctx, tx, pgx.RowTo[int], hotSQL, tenants, variants, places)
	if err != nil {
		return nil, fmt.Errorf("read which variants are hot: %w", err)
	}
	scattered = make(map[int]bool, len(hot))
	for _, i := range hot {
		scattered[i] = true
	}
	return scattered, nil
}

// splitScattered returns the claimed requests that are decided in their batch,
// and notes the others in the report.
func (d *Drain) splitScattered(ctx context.Context, tx pgx.Tx, claimed []requests.Request, report *Report) ([]requests.Request, error) {
	scattered, err := scatteredOf(ctx, tx, claimed)
	if err != nil || len(scattered) == 0 {
		return claimed, err
	}
	together := make([]requests.Request, 0, len(claimed))
	for i := range claimed {
		if scattered[i] {
			report.scattered = append(report.scattered, claimed[i])
		} else {
			together = append(together, claimed[i])
		}
	}
	return together, nil
}

// isScattered reports whether a request is decided by its parts.
func (d *Drain) isScattered(ctx context.Context, tx pgx.Tx, r requests.Request) (bool, error) {
	if r.OpenParts != nil {
		return true, nil
	}
	scattered, err := scatteredOf(ctx, tx, []requests.Request{r})
	return scattered[0], err
}

// isolateAll claims the requests visibly and scatters their parts.
func (d *Drain) isolateAll(ctx context.Context, slot int16, rs []requests.Request) error {
	for _, r := range rs {
		if _, err := d.isolate(ctx, slot, r); err != nil {
			return err
		}
	}
	return nil
}

// completeParents completes the requests of several lines whose last part is
// among the finished requests. After an error the next tick does.
func (d *Drain) completeParents(ctx context.Context, finished []requests.Request) {
	var parents []requestrows.Ref
	seen := make(map[requestrows.Ref]bool)
	for i := range finished {
		if finished[i].ParentID == nil {
			continue
		}
		if ref := (requestrows.Ref{TenantID: finished[i].TenantID, RequestID: *finished[i].ParentID}); !seen[ref] {
			seen[ref] = true
			parents = append(parents, ref)
		}
	}
	if len(parents) == 0 {
		return
	}
	claimed, err := requestrows.ClaimDecided(ctx, d.db, parents, d.config.Retry.ClaimFor)
	for i := 0; i < len(claimed) && err == nil; i++ {
		_, err = d.attempt(ctx, claimed[i])
	}
	if err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "a request of several lines was not completed; the next tick does", "error", err)
	}
}

// wake wakes the streams that got parts of a request.
func (d *Drain) wake(ctx context.Context, streams []lanes.Stream) {
	if d.config.Wake == nil {
		return
	}
	if err := d.config.Wake(ctx, streams); err != nil {
		d.log.WarnContext(ctx, "drains were not woken; the next tick does", "error", err)
	}
}
