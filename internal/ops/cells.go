package ops

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
)

// Cells are the cells that a process serves. Each Reader made with them has those of
// all in its overview. The zero value has none. It is safe for concurrent use.
type Cells struct {
	mu      sync.Mutex
	members []*member // by name
}

// member is a cell and what was read of it last.
type member struct {
	name   string
	reader *Reader

	mu      sync.Mutex
	last    OverviewCell
	readAt  time.Time     // when last was read; zero before
	reading chan struct{} // closed once it is read again; nil if it is not being read
}

// OverviewCell is a cell in short.
type OverviewCell struct {
	Cell             string       `json:"cell" doc:"The name of the cell."`
	Own              bool         `json:"own" doc:"It has your tenant, whose state the rest of the overview is."`
	Available        bool         `json:"available" doc:"Its database responds. The figures of another one are those of before, or 0."`
	Depth            int64        `json:"depth" doc:"Requests that wait for their decision, in all lanes."`
	OldestSeconds    float64      `json:"oldest_seconds" doc:"How long the oldest of them has waited."`
	DecidedPerSecond float64      `json:"decided_per_second" doc:"Requests that are decided, per second."`
	Paused           []lanes.Lane `json:"paused" doc:"The lanes that are paused."`
	SweepSeconds     float64      `json:"sweep_seconds" doc:"For how long the oldest work of maintenance is due; 0 for none."`
	BehindSeconds    float64      `json:"behind_seconds" doc:"The age of the oldest record that a reader of the audit log has not received."`
}

// join adds the cell of a Reader, once for each name.
func (c *Cells) join(name string, r *Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, exists := slices.BinarySearchFunc(c.members, name, func(m *member, name string) int { return strings.Compare(m.name, name) })
	if !exists {
		c.members = slices.Insert(c.members, at, &member{name: name, reader: r, last: OverviewCell{Cell: name, Paused: []lanes.Lane{}}})
	}
}

const (
	// cellMax is the age from which the summary of a cell is read again.
	cellMax = time.Second
	// cellTimeout is how long the reading of a cell may take. A cell that takes
	// longer is not available.
	cellTimeout = 5 * time.Second
	// cellOld is the age from which callers wait for the reading. A page that is
	// open does not see one as old.
	cellOld = 2 * cellTimeout
)

// read returns all cells at once, in the order of their names.
func (c *Cells) read(ctx context.Context, own string) []OverviewCell {
	c.mu.Lock()
	members := slices.Clone(c.members)
	c.mu.Unlock()
	all := make([]OverviewCell, len(members))
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() {
			all[i] = m.read(ctx)
			all[i].Own = m.name == own
		})
	}
	group.Wait()
	return all
}

// read returns the cell as it was read last, and has it read again if that is too
// long ago. Only a caller after a while without any waits for the reading, so a cell
// that does not respond delays no page that is open.
func (m *member) read(ctx context.Context) OverviewCell {
	m.mu.Lock()
	old := time.Since(m.readAt) >= cellOld
	if m.reading == nil && time.Since(m.readAt) >= cellMax {
		m.reading = make(chan struct{})
		go m.refresh(context.WithoutCancel(ctx), m.reading)
	}
	reading := m.reading
	m.mu.Unlock()
	if old {
		select {
		case <-reading:
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// refresh reads the cell, and closes done.
func (m *member) refresh(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, cellTimeout)
	defer cancel()
	now, err := m.reader.cell(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.last = now
	}
	m.last.Cell, m.last.Available = m.name, err == nil
	m.readAt, m.reading = time.Now(), nil
	close(done)
}

// cell returns the reader's cell in short.
func (o *Reader) cell(ctx context.Context) (c OverviewCell, err error) {
	all, err := o.lanes(ctx)
	if err != nil {
		return c, err
	}
	c.Paused = []lanes.Lane{}
	for i := range all {
		l := &all[i]
		c.Depth, c.DecidedPerSecond = c.Depth+l.Depth, rounded(c.DecidedPerSecond+l.DecidedPerSecond)
		c.OldestSeconds = max(c.OldestSeconds, l.OldestSeconds)
		if l.Paused {
			c.Paused = append(c.Paused, l.Lane)
		}
	}
	sweeps, err := o.sweeps(ctx)
	if err != nil {
		return c, err
	}
	for _, s := range sweeps {
		c.SweepSeconds = max(c.SweepSeconds, s.LagSeconds)
	}
	readers, err := o.subscriptions(ctx)
	for i := range readers {
		c.BehindSeconds = max(c.BehindSeconds, readers[i].LagSeconds)
	}
	return c, err
}
