package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of /proc/PID/stat, which Linux fixes for programs.
const clockTick = 10 * time.Millisecond

// errNoCPU means that the system does not report the CPU time of processes as
// Linux does.
var errNoCPU = errors.New("this system has no /proc/PID/stat")

// cpuOf is the CPU time that a process has used, without that of its ended
// children.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNoCPU, err)
	}
	return parseProcessCPU(string(text))
}

// fieldsOf are the fields of /proc/PID/stat from the third on. The second is a name
// in parentheses, which may hold any character.
func fieldsOf(stat string) []string { return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) }

// parseProcessCPU reads user and system time, the 14th and 15th field.
func parseProcessCPU(stat string) (used time.Duration, err error) {
	const user, system = 14 - 3, 15 - 3 // behind the name
	fields := fieldsOf(stat)
	if len(fields) <= system {
		return 0, errNoCPU
	}
	for _, field := range []string{fields[user], fields[system]} {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, errNoCPU
		}
		used += time.Duration(ticks) * clockTick
	}
	return used, nil
}

const backendsSQL = `
SELECT pid, CASE WHEN application_name LIKE 'holdfast%' THEN 'Postgres for ' || application_name
                 WHEN backend_type = 'client backend' THEN 'Postgres for the bench'
                 ELSE 'Postgres, its own processes' END
FROM pg_stat_activity`

// stages is the CPU time of each process with its stage. A Postgres session
// belongs to the stage of the program that it serves.
type stages map[int]stageTime

type stageTime struct {
	stage string
	used  time.Duration
}

func (b *bench) stages(ctx context.Context, f *deployment) (stages, error) {
	found := stages{
		os.Getpid():              {stage: "load generator"},
		f.api.cmd.Process.Pid:    {stage: "API"},
		f.worker.cmd.Process.Pid: {stage: "worker"},
	}
	rows, err := b.admin.Query(ctx, backendsSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		var stage string
		if err := rows.Scan(&pid, &stage); err != nil {
			return nil, err
		}
		found[pid] = stageTime{stage: stage}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for pid, process := range found {
		if process.used, err = cpuOf(pid); err != nil {
			if pid == os.Getpid() {
				return nil, err
			}
			delete(found, pid) // it has ended
			continue
		}
		found[pid] = process
	}
	return found, nil
}

// since is the CPU time by stage. A process that did not exist before counts
// from its start.
func (s stages) since(before stages) map[string]time.Duration {
	used := make(map[string]time.Duration)
	for pid, process := range s {
		used[process.stage] += process.used - before[pid].used
	}
	return used
}
