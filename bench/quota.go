package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// quotaPeriod is short, so that a server that has used its share does not pause
// for long.
const quotaPeriod = 10 * time.Millisecond

// errNoQuota means that this process may not limit the CPU of others.
var errNoQuota = errors.New("no control group for the CPU can be made here")

// quota is a Linux control group that limits the CPU time of processes.
type quota struct{ folder string }

// newQuota makes a group with a share of one core, by version 2 of the control
// groups or by version 1.
func newQuota(name string, cores float64) (*quota, error) {
	share := strconv.FormatInt(int64(cores*float64(quotaPeriod.Microseconds())), 10)
	period := strconv.FormatInt(quotaPeriod.Microseconds(), 10)
	q := &quota{"/sys/fs/cgroup/" + name}
	files := [][2]string{{"cpu.max", share + " " + period}}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		q.folder = "/sys/fs/cgroup/cpu/" + name
		files = [][2]string{{"cpu.cfs_period_us", period}, {"cpu.cfs_quota_us", share}}
	}
	if err := os.Mkdir(q.folder, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoQuota, err)
	}
	for _, file := range files {
		if err := q.write(file[0], file[1]); err != nil {
			q.remove()
			return nil, fmt.Errorf("%w: %w", errNoQuota, err)
		}
	}
	return q, nil
}

func (q *quota) write(file, text string) error {
	return os.WriteFile(filepath.Join(q.folder, file), []byte(text), 0o644)
}

// add puts a process and its children into the group. What they start later is
// in it too.
func (q *quota) add(pid int) error {
	found, err := childrenOf(pid)
	if err != nil {
		return err
	}
	for _, pid := range append([]int{pid}, found...) {
		if err := q.write("cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, syscall.ESRCH) { // it has ended
			return fmt.Errorf("%w: process %d: %w", errNoQuota, pid, err)
		}
	}
	return nil
}

// remove removes the group, once its processes have ended.
func (q *quota) remove() { _ = os.Remove(q.folder) } // what is left limits nothing

// childrenOf are the processes that a process has started and that run.
func childrenOf(parent int) (pids []int, err error) {
	const ppid = 4 - 3 // the fourth field, behind the name
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := fieldsOf(string(text))
		if len(fields) <= ppid || fields[ppid] != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
