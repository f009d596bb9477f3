package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/bench/load"
)

// nothing is a holder that does nothing: the rest of the service is its HTTP.
type nothing struct{}

func (nothing) Hold(context.Context, baselines.Request) error { return nil }

func holdNothing(*pgxpool.Pool) baselines.Holder { return nothing{} }

// bareCPU is the CPU time per call of two services with the same clients: the
// bare handler, which decodes the call, checks the key and answers, and the
// micro-batcher.
func (b *bench) bareCPU(ctx context.Context) ([]Measure, error) {
	var measures []Measure
	for _, service := range []struct{ name, form string }{
		{"ledger_bare_us", formNothing}, {"ledger_microbatch_us", formMicroBatch},
	} {
		m, err := b.serviceCPU(ctx, service.name, service.form)
		if err != nil {
			return nil, err
		}
		measures = append(measures, m)
	}
	return measures, nil
}

func (b *bench) serviceCPU(ctx context.Context, name, form string) (Measure, error) {
	s, err := b.newSynchronous(ctx, form)
	if err != nil {
		return Measure{}, err
	}
	defer s.close()
	if _, err := load.Closed(ctx, s.target(), httpClients, b.long/2, toHot); err != nil { // the warm-up
		return Measure{}, err
	}
	pid := s.process.cmd.Process.Pid
	before, err := cpuOf(pid)
	if errors.Is(err, errNoCPU) {
		return skipped(name, errNoCPU.Error()), nil
	}
	if err != nil {
		return Measure{}, err
	}
	loaded, err := load.Closed(ctx, s.target(), httpClients, b.long, toHot)
	if err != nil {
		return Measure{}, err
	}
	after, err := cpuOf(pid)
	if err != nil {
		return Measure{}, err
	}
	each := float64((after-before)/time.Microsecond) / float64(max(loaded.Accepted, 1))
	m := newMeasure(name, "µs", []float64{each})
	m.note("of %d calls, %.0f per second", loaded.Accepted, float64(loaded.Accepted)/loaded.Elapsed.Seconds())
	return m, nil
}
