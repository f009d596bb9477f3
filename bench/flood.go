package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/bench/load"
)

// floodCommand makes this program a flood: for itself only, so that who measures beside it shares cores with it, but no
// scheduler and no garbage collector.
const floodCommand = "flood"

// flood sends rate calls a second to the hot variant, whatever becomes of them, and closes ready when it begins. Its result
// has no latencies.
func (b *bench) flood(ctx context.Context, f *front, rate float64, long time.Duration, ready chan<- struct{}) (*load.Result, error) {
	target := f.target()
	child := exec.CommandContext(ctx, b.self, floodCommand, "-address", target.Address, "-key", target.Key,
		"-rate", strconv.FormatFloat(rate, 'f', 1, 64), "-conns", strconv.Itoa(b.conns), "-long", long.String())
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	child.Stderr = b.stderr
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("start a flood: %w", err)
	}
	said, r := json.NewDecoder(out), new(load.Result)
	var begun bool
	if err = said.Decode(&begun); err == nil {
		close(ready)
		err = said.Decode(r)
	}
	if ended := child.Wait(); err != nil || ended != nil {
		return nil, fmt.Errorf("flood: %w", errors.Join(err, ended))
	}
	return r, nil
}

func runFlood(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet(floodCommand, flag.ContinueOnError)
	var target load.Target
	flags.StringVar(&target.Address, "address", "", "where the calls go")
	flags.StringVar(&target.Key, "key", "", "the API key")
	rate := flags.Float64("rate", 1, "calls a second")
	conns := flags.Int("conns", 1, "connections")
	long := flags.Duration("long", time.Second, "for how long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	say := json.NewEncoder(stdout)
	target.Ready = func() { _ = say.Encode(true) } // who is not told anything hears of it at the end
	r, err := load.Open(ctx, target, *rate, *conns, *long, toHot)
	if err != nil {
		return err
	}
	r.Latencies = nil
	return say.Encode(r)
}
