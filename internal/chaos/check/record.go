package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/chaos/traffic"
)

// level is a stock by the audit rows read so far.
type level struct {
	stock, reserved int64
	bounded         bool // tracked, and without backorder
}

// levels applies the audit rows in the order of their ids. After no row is more
// reserved than the stock. That the rows of each reservation are complete and
// that the tables agree with the latest is checked by package verify.
func (c *checker) levels() {
	levels := map[traffic.StockRef]*level{}
	for i := range c.record {
		a := &c.record[i]
		ref := traffic.StockRef{TenantID: a.TenantID, Variant: a.Variant}
		l := levels[ref]
		if l == nil {
			l = &level{}
			levels[ref] = l
		}
		switch a.Action {
		case "stock.set", "stock.adjusted":
			if a.Stock != nil {
				l.stock = *a.Stock
			}
			l.bounded = a.Bounded != nil && *a.Bounded
		case "reservation.held":
			l.reserved += a.Quantity
		case "reservation.resized":
			l.reserved += a.Quantity - a.Was
		case "reservation.released", "reservation.expired":
			l.reserved -= a.Quantity
		case "reservation.committed":
			l.reserved -= a.Quantity
			l.stock -= a.Quantity
		default:
			continue
		}
		if l.reserved < 0 || l.bounded && l.reserved > l.stock {
			c.findings.Add(RuleRecorded, "after audit row %d (%s, transaction %d) the record shows stock %d, reserved %d of %s", a.ID, a.Action, a.Transaction, l.stock, l.reserved, a.Variant)
		}
	}
}

// stocks compares the sum of each variant's units with its initial stock and
// adjustments.
func (c *checker) stocks() {
	held, committed := map[traffic.StockRef]int64{}, map[traffic.StockRef]int64{}
	for _, r := range c.reserved {
		ref := traffic.StockRef{TenantID: r.TenantID, Variant: r.Variant}
		switch r.Status {
		case "held":
			held[ref] += r.Quantity
		case "committed":
			committed[ref] += r.Quantity
		default:
		}
	}
	for _, tenant := range c.tenants {
		for _, v := range tenant.Variants {
			ref := traffic.StockRef{TenantID: tenant.ID, Variant: v.ID}
			s, had := c.stock[ref], v.Stock+c.facts.Adjusted[ref]
			if s.Reserved != held[ref] || s.Stock+committed[ref] != had || !v.Digital && s.Stock-s.Reserved < 0 {
				c.findings.Add(RuleConserved, "%s of %s had %d in all; it has stock %d, reserved %d, held %d, committed %d", v.ID, tenant.Name, had, s.Stock, s.Reserved, held[ref], committed[ref])
			}
		}
	}
}

// order compares, for each ordered variant, the order of decisions with the
// order in which callers came.
func (c *checker) order() {
	for _, tenant := range c.tenants {
		for _, v := range tenant.Variants {
			if v.Role != traffic.Ordered {
				continue
			}
			decided := c.decisions(tenant, v.ID)
			c.ordered += len(decided)
			for _, wrong := range inversions(decided) {
				c.findings.Add(RuleOrder, "%s of %s: request %s was acknowledged at %s before %s was sent at %s, and decided after it (audit rows %d and %d, %s and %s)",
					v.ID, tenant.Name, wrong.first.id, wrong.first.acked.Format(stamp), wrong.second.id, wrong.second.sent.Format(stamp),
					wrong.first.audit, wrong.second.audit, wrong.first.what, wrong.second.what)
			}
		}
	}
}

const stamp = "15:04:05.000000"

// decision is a decided request of an ordered variant.
type decision struct {
	id                 uuid.UUID
	sent, acked        time.Time
	audit, transaction int64
	what               string // "held", or the reason of the failure
	unitsHeld          bool
}

// decisions has the requests that were decided in the lane, without those that
// were cancelled or retried in isolation.
func (c *checker) decisions(tenant *traffic.Tenant, variant string) (decided []decision) {
	for _, q := range c.facts.Requests {
		if q.Tenant != tenant || q.Variant != variant || q.ID == uuid.Nil {
			continue
		}
		row, a := c.rows[q.ID], c.decided[q.ID]
		if row.Attempts > 0 || row.Reason == "cancelled" || a.ID == 0 || row.Lane != "hot" {
			continue
		}
		decided = append(decided, decision{
			id: q.ID, sent: q.Sent, acked: q.Acked, audit: a.ID, transaction: a.Transaction, what: cmp.Or(row.Reason, row.Status), unitsHeld: row.Status == "done",
		})
	}
	slices.SortFunc(decided, func(a, b decision) int { return cmp.Compare(a.audit, b.audit) })
	return decided
}

// inversion is a pair that was decided in the wrong order.
type inversion struct{ first, second decision }

// inversions finds requests that were acknowledged before another was sent, and
// decided in a later transaction. It also finds those that were decided in the
// same transaction but rejected as out of stock, while the later one, for the
// same quantity, was granted. They are in the order of audit rows, in which
// the rows of one transaction are adjacent.
//
// One that was granted may be decided after a later one that was out of stock: it
// waited for the unit of a hold that another transaction had locked, and was the
// first to get it. That is the exception of the promise.
//
// Of those that were copied from another cell the transactions are not known. They
// are only compared with the later ones.
func inversions(decided []decision) (wrong []inversion) {
	latest := time.Unix(0, math.MaxInt64)
	// The first acknowledged ones in later transactions: of all, and of those
	// that were not granted.
	earliest, earliestRefused := decision{acked: latest}, decision{acked: latest}
	for end := len(decided); end > 0; {
		begin := end - 1
		for begin > 0 && decided[begin-1].transaction == decided[end-1].transaction {
			begin--
		}
		group := decided[begin:end]
		refused := decision{acked: latest}
		for _, p := range group {
			if !p.unitsHeld && p.acked.Before(refused.acked) {
				refused = p
			}
		}
		for _, p := range group {
			before := earliest
			if p.what == "out_of_stock" {
				before = earliestRefused
			}
			if before.acked.Before(p.sent) {
				wrong = append(wrong, inversion{before, p})
			}
			if p.unitsHeld && p.transaction != 0 && refused.acked.Before(p.sent) {
				wrong = append(wrong, inversion{refused, p})
			}
		}
		for _, p := range group {
			if p.acked.Before(earliest.acked) {
				earliest = p
			}
			if !p.unitsHeld && p.acked.Before(earliestRefused.acked) {
				earliestRefused = p
			}
		}
		end = begin
	}
	return wrong
}
