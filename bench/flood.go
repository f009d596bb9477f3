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

// floodCommand makes this program a flood. Only the program itself starts it:
// as a separate process it shares the cores with the load that is measured, but
// neither its scheduler nor its garbage collector.
const floodCommand = "flood"

// flood sends rate calls per second to the hot variant, whatever their answers
// are, and closes ready when it begins. Its result has no latencies.
func (b *bench) flood(ctx context.Context, f *deployment, rate float64, long time.Duration, ready chan<- struct{}) (*load.Result, error) {
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
	rate := flags.Float64("rate", 1, "calls per second")
	conns := flags.Int("conns", 1, "connections")
	long := flags.Duration("long", time.Second, "for how long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	say := json.NewEncoder(stdout)
	target.Ready = func() { _ = say.Encode(true) } // a failed write is reported with the result
	r, err := load.Open(ctx, target, *rate, *conns, *long, toHot)
	if err != nil {
		return err
	}
	r.Latencies = nil
	return say.Encode(r)
}
