package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a schedule may name a zone, and a small image has no files for them

	"github.com/robfig/cron/v3"
)

// Schedule is the times at which a periodic pass runs.
type Schedule struct {
	cron.Schedule
	spec string
}

// String is the schedule as it was written.
func (s Schedule) String() string { return s.spec }

// EnvDecode reads a cron line of five fields, optionally preceded by
// CRON_TZ=zone, or @hourly, @daily, @every 15s and the like.
func (s *Schedule) EnvDecode(value string) error {
	parsed, err := parseCron(value)
	if err != nil {
		return ruleError("must be a schedule such as \"@every 15s\" or \"*/5 * * * *\" (" + err.Error() + ")")
	}
	*s = Schedule{parsed, value}
	return nil
}

// parseCron returns an error for three inputs that the parser handles badly. It
// panics on a zone without a schedule. It rounds an interval below a second up
// to a second. It accepts a date that never comes, for which River would never
// run the job.
func parseCron(spec string) (parsed cron.Schedule, err error) {
	defer func() {
		if recover() != nil {
			parsed, err = nil, errors.New("the zone is not followed by a schedule")
		}
	}()
	if parsed, err = cron.ParseStandard(spec); err != nil {
		return nil, err
	}
	if _, every, ok := strings.Cut(spec, "@every "); ok {
		if d, err := time.ParseDuration(every); err == nil && d < time.Second {
			return nil, fmt.Errorf("every %s is more often than every second", d)
		}
	}
	if parsed.Next(time.Now()).IsZero() {
		return nil, errors.New("the date never comes")
	}
	return parsed, nil
}
