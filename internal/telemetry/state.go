package telemetry

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// State is the content of the database at one moment, over all processes.
type State struct {
	// Cell is the name of the database, where there are several; it becomes the
	// label cell of each gauge.
	Cell  string
	Lanes []LaneState
	// HotVariants counts the variants by state: "entering", "hot", "leaving".
	HotVariants map[string]int64
	// SweepLagSeconds is for how long the oldest due hold has been due, 0
	// without one.
	SweepLagSeconds float64
	Subscriptions   []SubscriptionState
}

// LaneState is the backlog of a lane.
type LaneState struct {
	Lane             string
	Depth            int64
	OldestAgeSeconds float64
	Paused           bool
}

// SubscriptionState is the position of a subscription of the record.
type SubscriptionState struct {
	Name       string
	Lag        int64
	LagSeconds float64
}

// Observe registers gauges of the state that read returns whenever the metrics
// are read: holdfast.lane.depth, holdfast.lane.oldest_age and
// holdfast.lane.paused with the label lane; holdfast.hot.variants with the
// label state; holdfast.sweep.lag; holdfast.audit.lag and
// holdfast.audit.lag_age with the label subscription, a name that the operator
// chose.
//
// While read returns false, the gauges are absent: an old value would hide that
// the database does not answer.
func Observe(read func() (State, bool)) error {
	g, err := newGauges()
	if err != nil {
		return err
	}
	_, err = otel.Meter(scope).RegisterCallback(func(_ context.Context, o metric.Observer) error {
		if s, ok := read(); ok {
			g.observe(o, s)
		}
		return nil
	}, g.all...)
	if err != nil {
		return fmt.Errorf("register the gauges: %w", err)
	}
	return nil
}

type gauges struct {
	depth, age, paused, hot, sweepLag, tailLag, tailAge metric.Float64ObservableGauge
	all                                                 []metric.Observable
}

func newGauges() (g gauges, err error) {
	for _, of := range []struct {
		gauge                   *metric.Float64ObservableGauge
		name, unit, description string
	}{
		{&g.depth, "holdfast.lane.depth", "{request}", "Requests that wait for their decision, over all processes."},
		{&g.age, "holdfast.lane.oldest_age", "s", "Age of the oldest request that waits for its decision."},
		{&g.paused, "holdfast.lane.paused", "", "1 while the lane is paused, else 0."},
		{&g.hot, "holdfast.hot.variants", "{variant}", "Variants in the hot lane, and on their way in or out, by state."},
		{&g.sweepLag, "holdfast.sweep.lag", "s", "Time since the deadline of the oldest hold that is past it and not expired yet."},
		{&g.tailLag, "holdfast.audit.lag", "{record}", "Upper bound of the records that a subscription has not received yet."},
		{&g.tailAge, "holdfast.audit.lag_age", "s", "Age of the oldest record that a subscription has not received yet."},
	} {
		*of.gauge, err = otel.Meter(scope).Float64ObservableGauge(of.name, metric.WithUnit(of.unit), metric.WithDescription(of.description))
		if err != nil {
			return g, fmt.Errorf("make the gauge %s: %w", of.name, err)
		}
		g.all = append(g.all, *of.gauge)
	}
	return g, nil
}

func (g *gauges) observe(o metric.Observer, s State) {
	with := func(labels ...attribute.KeyValue) metric.ObserveOption {
		if s.Cell != "" {
			labels = append(labels, attribute.String("cell", s.Cell))
		}
		return metric.WithAttributes(labels...)
	}
	for _, l := range s.Lanes {
		lane := with(attribute.String("lane", l.Lane))
		o.ObserveFloat64(g.depth, float64(l.Depth), lane)
		o.ObserveFloat64(g.age, l.OldestAgeSeconds, lane)
		paused := 0.0
		if l.Paused {
			paused = 1
		}
		o.ObserveFloat64(g.paused, paused, lane)
	}
	for _, state := range []string{"entering", "hot", "leaving"} {
		o.ObserveFloat64(g.hot, float64(s.HotVariants[state]), with(attribute.String("state", state)))
	}
	o.ObserveFloat64(g.sweepLag, s.SweepLagSeconds, with())
	for _, sub := range s.Subscriptions {
		name := with(attribute.String("subscription", sub.Name))
		o.ObserveFloat64(g.tailLag, float64(sub.Lag), name)
		o.ObserveFloat64(g.tailAge, sub.LagSeconds, name)
	}
}
