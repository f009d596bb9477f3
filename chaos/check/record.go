package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/chaos/traffic"
)

// level is a stock as the record describes it so far.
type level struct {
	stock, reserved int64
	bounded         bool // tracked, and without backorder
}

// transitions folds the record in the order of its ids: no row shows more reserved than there is, every reservation is
// held once, first, and ends at most once, last; and in the end the fold is what the tables say.
func (c *checker) transitions() {
	levels := map[traffic.StockRef]*level{}
	held, ended := map[uuid.UUID]bool{}, map[uuid.UUID]string{}
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
			if held[a.Target] {
				c.findings.Add(RuleRecorded, "audit row %d: reservation %s was held a second time", a.ID, a.Target)
			}
			held[a.Target] = true
			l.reserved += a.Quantity
		case "reservation.committed", "reservation.released", "reservation.expired":
			if !held[a.Target] || ended[a.Target] != "" {
				c.findings.Add(RuleRecorded, "audit row %d: %s of reservation %s, held %t, ended before by %q", a.ID, a.Action, a.Target, held[a.Target], ended[a.Target])
			}
			ended[a.Target] = a.Action
			l.reserved -= a.Quantity
			if a.Action == "reservation.committed" {
				l.stock -= a.Quantity
			}
		default:
			continue
		}
		if l.reserved < 0 || l.bounded && l.reserved > l.stock {
			c.findings.Add(RuleRecorded, "after audit row %d (%s, transaction %d) the record shows stock %d, reserved %d of %s", a.ID, a.Action, a.Transaction, l.stock, l.reserved, a.Variant)
		}
	}
	for id, r := range c.reserved {
		want := ""
		if r.Status != "held" {
			want = "reservation." + r.Status
		}
		if !held[id] || ended[id] != want {
			c.findings.Add(RuleRecorded, "reservation %s is %s, and its record says held %t, ended by %q", id, r.Status, held[id], ended[id])
		}
	}
	for ref, s := range c.stock {
		if l := levels[ref]; l != nil && (l.stock != s.Stock || l.reserved != s.Reserved) {
			c.findings.Add(RuleRecorded, "%s has stock %d, reserved %d, and its record says %d, %d", ref.Variant, s.Stock, s.Reserved, l.stock, l.reserved)
		}
	}
}

// stocks adds up each variant's units.
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

// order holds the variants that stand in line against the order in which callers came.
func (c *checker) order() {
	for _, tenant := range c.tenants {
		for _, v := range tenant.Variants {
			if v.Role != traffic.Line {
				continue
			}
			line := c.line(tenant, v.ID)
			c.inLine += len(line)
			for _, wrong := range inversions(line) {
				c.findings.Add(RuleOrder, "%s of %s: request %s was acknowledged at %s before %s was sent at %s, and decided after it (audit rows %d and %d, %s and %s)",
					v.ID, tenant.Name, wrong.first.id, wrong.first.acked.Format(stamp), wrong.second.id, wrong.second.sent.Format(stamp),
					wrong.first.audit, wrong.second.audit, wrong.first.what, wrong.second.what)
			}
		}
	}
}

const stamp = "15:04:05.000000"

// place is a request in a line.
type place struct {
	id                 uuid.UUID
	sent, acked        time.Time
	audit, transaction int64
	what               string // held, or why not
	unitsHeld          bool
}

// line are the requests that were decided in the lane: not those that were cancelled, or tried alone.
func (c *checker) line(tenant *traffic.Tenant, variant string) (line []place) {
	for _, q := range c.facts.Requests {
		if q.Tenant != tenant || q.Variant != variant || q.ID == uuid.Nil {
			continue
		}
		row, a := c.rows[q.ID], c.decided[q.ID]
		if row.Attempts > 0 || row.Reason == "cancelled" || a.ID == 0 || row.Lane != "hot" {
			continue
		}
		line = append(line, place{
			id: q.ID, sent: q.Sent, acked: q.Acked, audit: a.ID, transaction: a.Transaction, what: cmp.Or(row.Reason, row.Status), unitsHeld: row.Status == "done",
		})
	}
	slices.SortFunc(line, func(a, b place) int { return cmp.Compare(a.audit, b.audit) })
	return line
}

// inversion is a pair that was decided in the wrong order.
type inversion struct{ first, second place }

// inversions finds requests that were acknowledged before another was sent, and decided in a later transaction; or in the
// same one, but refused for want of stock where the other, for as much, was granted. The line is in the order of audit
// rows, in which the rows of one transaction stand together.
func inversions(line []place) (wrong []inversion) {
	latest := time.Unix(0, math.MaxInt64)
	earliest := place{acked: latest} // acknowledged, of those in later transactions
	for end := len(line); end > 0; {
		begin := end - 1
		for begin > 0 && line[begin-1].transaction == line[end-1].transaction {
			begin--
		}
		group := line[begin:end]
		refused := place{acked: latest}
		for _, p := range group {
			if !p.unitsHeld && p.acked.Before(refused.acked) {
				refused = p
			}
		}
		for _, p := range group {
			if earliest.acked.Before(p.sent) {
				wrong = append(wrong, inversion{earliest, p})
			}
			if p.unitsHeld && refused.acked.Before(p.sent) {
				wrong = append(wrong, inversion{refused, p})
			}
		}
		for _, p := range group {
			if p.acked.Before(earliest.acked) {
				earliest = p
			}
		}
		end = begin
	}
	return wrong
}
