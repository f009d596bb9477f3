package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// about describes the machine, the settings and the time of the measurement.
type about struct {
	cpu, goVersion, postgres, redis string
	cores                           int
	at                              time.Time
	settings                        [][2]string
	bars                            []bar
	host                            host
}

const settingsSQL = `
SELECT name, current_setting(name)
FROM unnest(ARRAY['fsync', 'synchronous_commit', 'full_page_writes', 'wal_compression', 'shared_buffers', 'max_wal_size',
                  'checkpoint_timeout', 'wal_buffers', 'autovacuum', 'jit']) AS name`

func describe(ctx context.Context, b *bench) (a about, err error) {
	a = about{cpu: cpuName(), goVersion: runtime.Version(), cores: runtime.NumCPU(), at: time.Now().UTC(), redis: "not installed"}
	if err := b.admin.QueryRow(ctx, `SHOW server_version`).Scan(&a.postgres); err != nil {
		return a, err
	}
	rows, err := b.admin.Query(ctx, settingsSQL)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	for rows.Next() {
		var setting [2]string
		if err := rows.Scan(&setting[0], &setting[1]); err != nil {
			return a, err
		}
		a.settings = append(a.settings, setting)
	}
	if version, err := exec.CommandContext(ctx, "redis-server", "--version").Output(); err == nil {
		a.redis = strings.TrimPrefix(strings.Join(strings.Fields(string(version))[:3], " "), "Redis server v=")
	}
	if err := rows.Err(); err != nil {
		return a, err
	}
	a.host.FsyncMedianMs, a.host.FsyncP99Ms, err = b.timeFsyncs(ctx)
	return a, err
}

// cpuName is the processor's name, on a system that reports it.
func cpuName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// header is the first line of the JSON.
type header struct {
	Run struct {
		CPU      string    `json:"cpu"`
		Cores    int       `json:"cores"`
		Postgres string    `json:"postgres"`
		Redis    string    `json:"redis"`
		Go       string    `json:"go"`
		At       time.Time `json:"at"`
		host
	} `json:"run"`
}

func (a *about) header() (h header) {
	h.Run.CPU, h.Run.Cores, h.Run.Postgres, h.Run.Redis, h.Run.Go = a.cpu, a.cores, a.postgres, a.redis, a.goVersion
	h.Run.At, h.Run.host = a.at, a.host
	return h
}

// head prints the header above the table.
func (a *about) head(stdout io.Writer) {
	_, _ = fmt.Fprintf(stdout, "%s, %d cores; Postgres %s, Redis %s, %s\n%s; %s; %s\n\n",
		a.cpu, a.cores, a.postgres, a.redis, a.goVersion, a.host.steal(), a.host.fsync(), a.host.raw())
}

// show prints the measures and writes the requested files.
func (o options) show(stdout, stderr io.Writer, measures []Measure, a about) error {
	if o.json {
		encoder := json.NewEncoder(stdout)
		if err := encoder.Encode(a.header()); err != nil {
			return err
		}
		for _, m := range measures {
			if err := encoder.Encode(m); err != nil {
				return err
			}
		}
	} else {
		a.head(stdout)
		o.table(stdout, measures)
	}
	return o.write(stderr, measures, a)
}

// write writes the requested files, if all that they show was measured.
func (o options) write(stderr io.Writer, measures []Measure, a about) error {
	var missing []string
	for _, name := range expected() {
		if !slices.ContainsFunc(measures, func(m Measure) bool { return m.Measure == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 && (o.page != "" || o.plot != "") {
		fmt.Fprintf(stderr, "The page shows all suites, so it was not written: %s were not measured.\n", strings.Join(missing, ", "))
		return nil
	}
	if o.page != "" {
		text, err := page(o, measures, a)
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.page, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if o.plot != "" {
		return os.WriteFile(o.plot, []byte(plot(a.bars)), 0o644)
	}
	return nil
}

func (o options) table(stdout io.Writer, measures []Measure) {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "measure\tvalue\tunit\ttarget\t\tours\tother\tspread\tnote")
	for _, m := range measures {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f %%\t%s\n",
			m.Measure, figure(m.Value), m.Unit, m.wanted(), m.result(), figure(m.Ours), figure(m.Other), m.Spread*100, m.Note)
	}
	_ = w.Flush() // a closed terminal cannot show the error either
}

// wanted is the target in words.
func (m *Measure) wanted() string {
	t := targets[m.Measure]
	switch {
	case t.value == 0:
		return ""
	case t.atMost:
		return "≤ " + figure(t.value)
	default:
		return "≥ " + figure(t.value)
	}
}

// result is pass or MISS, invalid or skipped, and noisy. It is empty for a
// measure without a target that is not noisy.
func (m *Measure) result() string {
	words := make([]string, 0, 2)
	switch {
	case m.Skipped != "":
		words = append(words, "skipped")
	case !m.Valid:
		words = append(words, "INVALID")
	case m.OK == nil: // no target
	case *m.OK:
		words = append(words, "pass")
	default:
		words = append(words, "MISS")
	}
	if m.Noisy {
		words = append(words, "noisy")
	}
	return strings.Join(words, ", ")
}

// figure has three significant digits, or all before the point.
func figure(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v >= 100 || v <= -100:
		return group(strconv.FormatFloat(v, 'f', 0, 64))
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

// group puts commas between thousands.
func group(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
