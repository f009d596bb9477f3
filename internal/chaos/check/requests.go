package check

import (
	"strings"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/chaos/traffic"
)

// requests compares each acknowledged request with its row.
func (c *checker) requests() {
	for _, q := range c.facts.Requests {
		if q.Key != "" {
			c.key(q)
		}
		if n := c.correlations[q.Correlation]; n > 1 {
			c.findings.Add(traffic.RuleIdempotent, "the call with correlation id %s was sent once and made %d requests", q.Correlation, n)
		}
		if q.ID == uuid.Nil {
			continue
		}
		row, found := c.rows[q.ID]
		if !found {
			c.findings.Add(traffic.RuleNotLost, "request %s, acknowledged at %s, has no row", q.ID, q.Acked)
			continue
		}
		c.request(q, row)
	}
	for correlation, how := range c.facts.NotDone {
		if c.correlations[correlation] > 0 {
			c.findings.Add(RuleNothing, "the call with correlation id %s was answered %s, and its request exists", correlation, how)
		}
	}
}

// key compares a request's key with the rows that have it.
func (c *checker) key(q *traffic.Request) {
	switch ids := c.keys[keyRef{q.Tenant.ID, q.Key}]; {
	case len(ids) > 1:
		c.findings.Add(traffic.RuleIdempotent, "key %s has requests %v", q.Key, ids)
	case q.ID != uuid.Nil && len(ids) == 1 && ids[0] != q.ID:
		c.findings.Add(traffic.RuleIdempotent, "key %s was answered with request %s and belongs to %s", q.Key, q.ID, ids[0])
	case q.Unknown:
		c.findings.Add(traffic.RuleAnswer, "an add or set under key %s, sent at %s, had no certain answer when the traffic ended", q.Key, q.Sent)
	}
}

func (c *checker) request(q *traffic.Request, row requestRow) {
	if row.Cart != q.Cart || row.Variant != q.Variant || row.Quantity != q.Quantity || row.TenantID != q.Tenant.ID {
		c.findings.Add(traffic.RuleRequestKept, "request %s for %d of %s in cart %s has the row %+v", q.ID, q.Quantity, q.Variant, q.Cart, row)
	}
	if row.Status != "done" && row.Status != "failed" {
		c.findings.Add(RuleDecided, "request %s is %s", q.ID, row.Status)
	}
	late := row.Reason == "expired_in_queue" && len(q.Lines) == 0 // a hold of several lines may expire before the last one is decided
	if row.Reason == "internal_error" || late || row.Reason == "unknown_variant" {
		c.findings.Add(RuleDecided, "request %s failed with %s after %d attempts", q.ID, row.Reason, row.Attempts)
	}
	if q.Cancelled && row.Reason != "cancelled" {
		c.findings.Add(traffic.RuleUnchanged, "request %s was answered as cancelled, and is %s %s", q.ID, row.Status, row.Reason)
	}
	v := q.Final
	if v == nil {
		return
	}
	held, exists := c.reserved[q.ID]
	switch {
	case v.Status != row.Status || v.ReasonText() != row.Reason || !v.UpdatedAt.Equal(row.UpdatedAt):
		c.findings.Add(traffic.RuleUnchanged, "request %s was %s %s at %s, and its row is %s %s at %s",
			q.ID, v.Status, v.ReasonText(), v.UpdatedAt, row.Status, row.Reason, row.UpdatedAt)
	case v.Reservation != nil && !exists:
		c.findings.Add(traffic.RuleNotLost, "request %s was answered with a reservation, which has no row", q.ID)
	case v.Reservation != nil && (held.Quantity != q.Quantity || held.Variant != q.Variant || held.Holder != q.Cart):
		c.findings.Add(traffic.RuleRequestKept, "request %s for %d of %s in cart %s holds %+v", q.ID, q.Quantity, q.Variant, q.Cart, held)
	}
}

// reservations compares each reservation with the acknowledged answers about
// it.
func (c *checker) reservations() {
	for id, status := range c.facts.Endings {
		if row, found := c.reserved[id]; !found || row.Status != status {
			c.findings.Add(traffic.RuleOneEnding, "reservation %s was acknowledged as %s, and is %q", id, status, row.Status)
		}
	}
	for id, deadline := range c.facts.Deadlines {
		row, found := c.reserved[id]
		switch {
		case !found:
			c.findings.Add(traffic.RuleNotLost, "reservation %s was answered, and has no row", id)
		case row.Status == "expired" && row.EndedAt.Before(deadline):
			c.findings.Add(RuleDeadline, "reservation %s expired at %s, and its deadline was answered as %s", id, row.EndedAt, deadline)
		case (row.Status == "held" || row.Status == "expired") && row.ExpiresAt.Before(deadline):
			c.findings.Add(RuleDeadline, "reservation %s has the deadline %s, and was answered with %s", id, row.ExpiresAt, deadline)
		}
	}
}

// verbs compares each call that finishes at once with its audit rows: one per
// target if it succeeded, none if it was refused, at most one if the outcome is
// unknown. A PUT has no key: repeated after another call's PUT, it sets its own
// value again, and its action ends in .set.
func (c *checker) verbs() {
	for _, v := range c.facts.Verbs {
		targets := v.Targets
		if len(targets) == 0 {
			targets = []uuid.UUID{uuid.Nil}
		}
		for _, target := range targets {
			n := c.effects[effect{v.Correlation, v.Action, target}]
			switch {
			case v.Outcome == traffic.Done && n != 1:
				c.findings.Add(traffic.RuleIdempotent, "%s of %s (correlation id %s) was answered as done and has %d audit rows", v.Action, target, v.Correlation, n)
			case v.Outcome == traffic.Refused && n != 0:
				c.findings.Add(RuleNothing, "%s of %s (correlation id %s) was refused and has %d audit rows", v.Action, target, v.Correlation, n)
			}
		}
	}
	for e, n := range c.effects {
		if n > 1 && !strings.HasSuffix(e.action, ".set") {
			c.findings.Add(traffic.RuleIdempotent, "the call with correlation id %s made %d audit rows %s of %s", e.correlation, n, e.action, e.target)
		}
	}
}
