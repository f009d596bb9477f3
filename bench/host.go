package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// host is what a run found out about its machine. Ratios depend on it: a
// baseline that waits for an fsync per request loses little on a machine with
// slow cores and a fast disk.
type host struct {
	// StealPercent is the share of the cores' time that the hypervisor gave to
	// other machines during the run, in percent. Nil where the system does not
	// report it.
	StealPercent *float64 `json:"steal_percent"`
	// FsyncMedianMs and FsyncP99Ms are the milliseconds of a write of 8 kB and
	// its fdatasync (fsync where the system has no fdatasync) in the folder of
	// the server's data, before the first suite. Nil if the folder cannot be
	// written.
	FsyncMedianMs *float64 `json:"fsync_median_ms"`
	FsyncP99Ms    *float64 `json:"fsync_p99_ms"`
	// RawPerSecond is the median rate of the raw statement over the run, in
	// rows per second.
	RawPerSecond float64 `json:"raw_per_second"`
}

const (
	// noisySteal is the steal, in percent, above which all measures of a run
	// are noisy.
	noisySteal = 5
	// noisySpread is the spread above which a measure is noisy.
	noisySpread = 0.3
)

// markNoisy marks the measures whose figures another run may not reproduce, and
// notes why. Measures without a figure are left as they are.
func (h *host) markNoisy(measures []Measure) {
	for i := range measures {
		m := &measures[i]
		if !m.Valid {
			continue
		}
		if m.Spread > noisySpread {
			m.Noisy = true
			m.note("noisy: a spread of %.0f %%", m.Spread*100)
		}
		if h.StealPercent != nil && *h.StealPercent > noisySteal {
			m.Noisy = true
			m.note("noisy: %.1f %% of the CPU was stolen", *h.StealPercent)
		}
	}
}

// steal is the steal in words.
func (h *host) steal() string {
	if h.StealPercent == nil {
		return "CPU steal is not reported by this system"
	}
	return fmt.Sprintf("%.1f %% CPU steal during the run", *h.StealPercent)
}

// fsync is the time of an fsync in words.
func (h *host) fsync() string {
	if h.FsyncMedianMs == nil || h.FsyncP99Ms == nil {
		return "fsync was not timed"
	}
	return fmt.Sprintf("8 kB written and synced in %.2f ms (p99 %.2f ms)", *h.FsyncMedianMs, *h.FsyncP99Ms)
}

// raw is the rate of the raw statement in words.
func (h *host) raw() string {
	if h.RawPerSecond == 0 {
		return "the raw statement did not run"
	}
	return "the raw statement writes " + figure(h.RawPerSecond) + " rows/s"
}

// cpuTimes are the ticks of all cores since the machine started.
type cpuTimes struct{ total, stolen uint64 }

// readCPU reads /proc/stat. It returns false on a system without that file or
// without steal in it.
func readCPU() (cpuTimes, bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTimes{}, false
	}
	return parseCPU(string(text))
}

// parseCPU reads the first line of /proc/stat: cpu user nice system idle iowait
// irq softirq steal guest guest_nice. The time of guests is part of user and
// nice.
func parseCPU(stat string) (t cpuTimes, ok bool) {
	const steal = 8
	first, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(first)
	if len(fields) <= steal || fields[0] != "cpu" {
		return t, false
	}
	for i := 1; i <= steal; i++ {
		ticks, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return t, false
		}
		t.total += ticks
		if i == steal {
			t.stolen = ticks
		}
	}
	return t, true
}

// stealSince is the steal since an earlier reading, in percent; nil where it is
// not known.
func stealSince(before cpuTimes, known bool) *float64 {
	after, ok := readCPU()
	if !known || !ok || after.total <= before.total {
		return nil
	}
	percent := 100 * float64(after.stolen-min(before.stolen, after.stolen)) / float64(after.total-before.total)
	return &percent
}

const (
	fsyncBlock = 8192
	// fsyncBlocks is the size of the file, whose blocks are overwritten in
	// turn, as those of the write-ahead log are.
	fsyncBlocks = 128
	fsyncTimes  = 400
	fsyncMax    = 5 * time.Second
)

const dataFolderSQL = `SELECT current_setting('data_directory')`

// timeFsyncs times writes with fdatasync in the folder of the server's data.
func (b *bench) timeFsyncs(ctx context.Context) (median, p99 *float64, err error) {
	var folder string
	if err := b.admin.QueryRow(ctx, dataFolderSQL).Scan(&folder); err != nil {
		return nil, nil, fmt.Errorf("find the data folder: %w", err)
	}
	times := fsyncTimes
	if b.cold {
		times = 10
	}
	found, err := timeFsyncsIn(folder, times)
	if err != nil {
		b.progress("fsync was not timed: %v", err)
		return nil, nil, nil
	}
	middle, high := milliseconds(quantile(found, 0.5)), milliseconds(quantile(found, 0.99))
	return &middle, &high, nil
}

func timeFsyncsIn(folder string, times int) (found []time.Duration, err error) {
	path := filepath.Join(folder, "bench-fsync")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(path) }() // the folder is temporary
	if _, err := f.Write(make([]byte, fsyncBlock*fsyncBlocks)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	block := slices.Repeat([]byte{1}, fsyncBlock)
	for deadline := time.Now().Add(fsyncMax); len(found) < times && time.Now().Before(deadline); {
		began := time.Now()
		if _, err := f.WriteAt(block, int64(len(found)%fsyncBlocks)*fsyncBlock); err != nil {
			return nil, err
		}
		if err := syncFile(f); err != nil {
			return nil, err
		}
		found = append(found, time.Since(began))
	}
	return found, nil
}

// rawReps is how often the raw statement runs if no suite ran it.
const rawReps = 3

// rawRate is the median rate of the raw statement in the suites that ran. If no
// suite ran it, rawRate runs a few repetitions.
func (b *bench) rawRate(ctx context.Context) (float64, error) {
	if len(b.rawRates) > 0 {
		return median(b.rawRates), nil
	}
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return 0, err
	}
	defer g.close()
	probe := *b
	probe.options.reps = min(b.reps, rawReps)
	c, err := probe.compare(ctx, probe.raw(g))
	if err != nil {
		return 0, err
	}
	return median(c[rawName].rates()), nil
}
