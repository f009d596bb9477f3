package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/internal/queues"
)

type lanesCommand struct {
	List   lanesList   `cmd:"" default:"withargs" help:"Show the lanes and the tenant's hot variants (the default)."`
	Pause  lanesPause  `cmd:"" help:"Stop deciding in a lane; requests are still accepted."`
	Resume lanesResume `cmd:"" help:"Decide in a lane again."`
	Cap    lanesCap    `cmd:"" help:"Bound how many requests a lane decides per second."`
	Pin    lanesPin    `cmd:"" help:"Make a variant hot until it is unpinned."`
	Unpin  lanesUnpin  `cmd:"" help:"Let the service choose the variant's lane again."`
}

type lanesList struct {
	JSON bool `help:"Print an object with all lanes."`
}

// hotVariant is a variant in the hot lane.
type hotVariant struct {
	VariantID     string  `json:"variant_id"`
	State         string  `json:"state"`
	Slot          int16   `json:"slot"`
	Pinned        bool    `json:"pinned"`
	RatePerSecond float64 `json:"rate_per_second"`
	Since         string  `json:"since"`
	Why           *string `json:"why"`
}

// Run prints a line for each lane, and then one for each of the tenant's hot
// variants.
func (c *lanesList) Run(ctx context.Context, process boot.Process) error {
	if c.JSON {
		return get(ctx, process, "/v1/lanes")
	}
	api, err := newClient(ctx, process)
	if err != nil {
		return err
	}
	var lanes struct {
		Items       []queues.LaneState `json:"items"`
		HotVariants []hotVariant       `json:"hot_variants"`
		Diversion   *struct {
			Since string `json:"since"`
			Why   string `json:"why"`
		} `json:"diversion"`
	}
	if err := api.do(ctx, http.MethodGet, "/v1/lanes", nil, &lanes); err != nil {
		return err
	}
	err = table(process.Stdout, "LANE\tDEPTH\tOLDEST S\tRATE/S\tCAP/S\tSLOTS\tSTATE", lanes.Items, func(w io.Writer, l *queues.LaneState) {
		rateCap, state := "-", "running"
		if l.RateCap != nil {
			rateCap = fmt.Sprint(*l.RateCap)
		}
		if l.Paused {
			state = "paused"
		}
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%.0f\t%s\t%d\t%s\n", l.Lane, l.Depth, l.OldestAgeSeconds, l.RatePerSecond, rateCap, l.Slots, state)
	})
	if err == nil && len(lanes.HotVariants) > 0 {
		err = printHot(process.Stdout, lanes.HotVariants)
	}
	if d := lanes.Diversion; err == nil && d != nil {
		_, err = fmt.Fprintf(process.Stdout, "\nDiverted since %s: %s\n", d.Since, d.Why)
	}
	return err
}

func printHot(out io.Writer, variants []hotVariant) error {
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return table(out, "HOT VARIANT\tSTATE\tSLOT\tRATE/S\tSINCE\tWHY", variants, func(w io.Writer, v *hotVariant) {
		why := ""
		switch {
		case v.Pinned:
			why = "pinned"
		case v.Why != nil:
			why = *v.Why
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%.0f\t%s\t%s\n", v.VariantID, v.State, v.Slot, v.RatePerSecond, v.Since, why)
	})
}

// laneArgument names the lane to control.
type laneArgument struct {
	Lane string `arg:"" enum:"${lanes}" help:"${either_lane}."`
}

func (a laneArgument) patch(ctx context.Context, process boot.Process, body map[string]any) error {
	return call(ctx, process, http.MethodPatch, client.Path("lanes", a.Lane), body)
}

type lanesPause struct{ laneArgument }

// Run pauses the lane in every process.
func (c *lanesPause) Run(ctx context.Context, process boot.Process) error {
	return c.patch(ctx, process, map[string]any{"paused": true})
}

type lanesResume struct{ laneArgument }

// Run resumes the lane in every process.
func (c *lanesResume) Run(ctx context.Context, process boot.Process) error {
	return c.patch(ctx, process, map[string]any{"paused": false})
}

type lanesCap struct {
	laneArgument
	Rate int32 `arg:"" help:"Requests per second over all processes; 0 for no cap."`
}

// Run sets the cap, or removes it.
func (c *lanesCap) Run(ctx context.Context, process boot.Process) error {
	body := map[string]any{"rate_cap": &c.Rate}
	if c.Rate == 0 {
		body["rate_cap"] = nil
	}
	return c.patch(ctx, process, body)
}

type lanesPin struct {
	Variant string `arg:"" help:"The variant's id."`
}

// Run pins the variant.
func (c *lanesPin) Run(ctx context.Context, process boot.Process) error {
	return call(ctx, process, http.MethodPut, stockPath(c.Variant), map[string]any{"lane": "hot"})
}

type lanesUnpin struct {
	Variant string `arg:"" help:"The variant's id."`
}

// Run removes the pin.
func (c *lanesUnpin) Run(ctx context.Context, process boot.Process) error {
	return call(ctx, process, http.MethodPut, stockPath(c.Variant), map[string]any{"lane": "auto"})
}
