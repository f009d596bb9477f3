package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a schedule may name a zone, and a small image has no files for them

	"github.com/robfig/cron/v3"
)

// Schedule says when a periodic pass runs next.
type Schedule struct {
	cron.Schedule
	spec string
}

// String is the schedule as it was written.
func (s Schedule) String() string { return s.spec }

// EnvDecode reads a cron line of five fields, which CRON_TZ=zone may precede, or @hourly, @daily, @every 15s and the like.
func (s *Schedule) EnvDecode(value string) error {
	parsed, err := parseCron(value)
	if err != nil {
		return ruleError("must be a schedule such as \"@every 15s\" or \"*/5 * * * *\" (" + err.Error() + ")")
	}
	*s = Schedule{parsed, value}
	return nil
}

// parseCron makes errors of what the parser lets through: it panics on a zone without a schedule, takes an interval
// below a second for a second, and accepts a date that never comes, which River would then silently never run.
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
			return nil, fmt.Errorf("every %s is more often than once a second", d)
		}
	}
	if parsed.Next(time.Now()).IsZero() {
		return nil, errors.New("the date never comes")
	}
	return parsed, nil
}
