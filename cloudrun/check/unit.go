package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// unit is one service, worker pool or job, as its manifest describes it.
type unit struct {
	// name is without the prefix "holdfast-"; kind is Service, WorkerPool or
	// Job.
	name, kind string
	place
	// fields are the settings that are compared with the programs, under names
	// that all kinds share: "timeout", "api.command", "api.startup.path".
	fields map[string]field
	// env is the environment of the program's container.
	env map[string]field
}

// field is a value and its place.
type field struct {
	value string
	place
}

func newUnit(name, kind string, at place) *unit {
	return &unit{
		name: strings.TrimPrefix(name, "holdfast-"), kind: kind, place: at,
		fields: map[string]field{}, env: map[string]field{},
	}
}

// set records a value that is set. An empty text counts as not set.
func (u *unit) set(name, value string, at place) {
	if value != "" {
		u.fields[name] = field{value, at}
	}
}

func (u *unit) setInt(name string, value int64, at place) {
	if value != 0 {
		u.set(name, strconv.FormatInt(value, 10), at)
	}
}

// get returns a field of the unit's program: get("startup.path") is the field
// api.startup.path of the unit api.
func (u *unit) get(name string) (field, bool) {
	f, ok := u.fields[u.name+"."+name]
	return f, ok
}

// port is the port on which the program listens: its variable PORT, which Cloud
// Run sets to the container's port, or its default.
func (u *unit) port(code *code) string {
	if p, ok := u.get("port"); ok {
		return p.value
	}
	if p, ok := u.env["PORT"]; ok {
		return p.value
	}
	return code.variables["PORT"]
}

// checkUnit compares a unit with the programs: the command, the variables that
// they read, the ports on which they listen.
func checkUnit(u *unit, code *code, image *image, r *report) {
	command, ok := u.get("command")
	if !ok {
		r.add(u.place, "%s names no command, and the image has no default", u.name)
		return
	}
	program, found := image.programs[command.value]
	if !found {
		r.add(command.place, "the image has no program %s; it has %s", command.value, strings.Join(slices.Sorted(maps.Keys(image.programs)), ", "))
		return
	}
	if args, ok := u.get("args"); ok && program == "oneshot" && !slices.Contains(code.passes, args.value) {
		r.add(args.place, "oneshot has no pass %s; it has %s", args.value, strings.Join(code.passes, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(u.env)) {
		if !code.reads(name) {
			r.add(u.env[name].place, "no program reads the variable %s", name)
		}
	}
	for _, name := range []string{"DATABASE_URL", "LOG_FORMAT", "GOMEMLIMIT"} {
		if _, given := u.env[name]; !given {
			r.add(u.place, "%s is not given %s", u.name, name)
		}
	}
	checkProbes(u, code, r)
	checkMemory(u, r)
	if u.kind == "Job" {
		checkTask(u, code, r)
	}
}

// checkProbes compares the probes with the port and the paths that the program
// serves. A job has no probes.
func checkProbes(u *unit, code *code, r *report) {
	if u.kind == "Job" {
		return
	}
	for _, probe := range []string{"startup", "liveness"} {
		path, ok := u.get(probe + ".path")
		if !ok {
			r.add(u.place, "%s has no HTTP %s probe: the default TCP probe passes before the database is open", u.name, probe)
			continue
		}
		if !code.serves[u.name][path.value] {
			r.add(path.place, "%s does not serve %s; its %s probe would fail", u.name, path.value, probe)
		}
		port, ok := u.get(probe + ".port")
		if !ok {
			r.add(path.place, "the %s probe of %s names no port", probe, u.name)
		} else if port.value != u.port(code) {
			r.add(port.place, "the %s probe of %s asks port %s, but it listens on %s", probe, u.name, port.value, u.port(code))
		}
	}
	if address, ok := u.env["METRICS_ADDRESS"]; !ok {
		r.add(u.place, "%s is not given METRICS_ADDRESS, so its metrics are on the public port", u.name)
	} else if _, port, _ := strings.Cut(address.value, ":"); port == u.port(code) {
		r.add(address.place, "METRICS_ADDRESS of %s is its public port", u.name)
	}
}

// checkMemory compares GOMEMLIMIT with the container's limit.
func checkMemory(u *unit, r *report) {
	limit, ok := u.env["GOMEMLIMIT"]
	memory, found := u.get("memory")
	if !ok || !found {
		return
	}
	soft, err := bytesOf(strings.TrimSuffix(limit.value, "B"))
	if err != nil {
		r.add(limit.place, "GOMEMLIMIT %s: %v", limit.value, err)
		return
	}
	hard, err := bytesOf(memory.value)
	if err != nil {
		r.add(memory.place, "the memory limit %s: %v", memory.value, err)
		return
	}
	if soft > hard*85/100 {
		r.add(limit.place, "GOMEMLIMIT %s of %s leaves less than 15 %% of its memory limit %s for memory outside Go's heap", limit.value, u.name, memory.value)
	}
}

// bytesOf parses 512Mi or 1Gi.
func bytesOf(text string) (int64, error) {
	for suffix, shift := range map[string]uint{"Mi": 20, "Gi": 30} {
		if digits, ok := strings.CutSuffix(text, suffix); ok {
			n, err := strconv.ParseInt(digits, 10, 32)
			return n << shift, err
		}
	}
	return strconv.ParseInt(text, 10, 64)
}

// stopMargin is the time that a task has left for its start, its last
// transaction and its report.
const stopMargin = 20 * time.Second

// unbounded are the passes that ONESHOT_TIME_MAX does not bound.
var unbounded = []string{"migrate", "verify"}

// checkTask compares a job's timeout with the longest duration of its pass, and
// checks the number of its retries.
func checkTask(u *unit, code *code, r *report) {
	timeout, ok := u.fields["timeout"]
	if !ok {
		r.add(u.place, "the job %s has no timeout", u.name)
		return
	}
	if retries, ok := u.fields["retries"]; !ok || retries.value != "0" && retries.value != "1" {
		at := u.place
		if ok {
			at = retries.place
		}
		r.add(at, "the job %s must have 0 or 1 retries: the default is 3, and any exit code but 0 is retried", u.name)
	}
	if slices.Contains(unbounded, u.name) {
		return
	}
	longest := stopMargin
	for _, name := range []string{"ONESHOT_TIME_MAX", "DATABASE_WAIT_MAX"} {
		value := code.variables[name]
		if given, ok := u.env[name]; ok {
			value = given.value
		}
		d, err := time.ParseDuration(value)
		if err != nil {
			r.add(u.env[name].place, "%s: %v", name, err)
			return
		}
		longest += d
	}
	if given, err := time.ParseDuration(timeout.value + "s"); err != nil || given <= longest {
		r.add(timeout.place, "the timeout of the job %s, %s s, must be above ONESHOT_TIME_MAX + DATABASE_WAIT_MAX + 20 s = %s", u.name, timeout.value, longest)
	}
}
