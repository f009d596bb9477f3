package boot

import (
	"time"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/verbs"
)

func (p *Program) terms() inventory.Terms {
	return inventory.Terms{TTL: p.Config.Holds.TTL, LifetimeMax: p.Config.Holds.LifetimeMax}
}

// groupMax is how many requests one transaction of the intake admits at most.
const groupMax = 500

// lanes is how many lanes there are.
const lanes = 2

// committers is how many groups of one lane are committed side by side.
func (p *Program) committers() int { return requests.Committers(p.Config.Metered.On) }

// lookers are the intake's further connections: one rings, one reads or counts what waits, one looks whether a
// refused caller's key is known.
const lookers = 3

// groupers are the connections that commit groups of the verbs that finish at once.
const groupers = 3

func (p *Program) groupsConfig() verbs.Config {
	_, closing := p.stopTimes()
	return verbs.Config{Log: p.Log, LineMax: p.Config.Intake.LineMax, GroupMax: min(200, p.Config.Intake.LineMax), StopTimeout: closing / 2}
}

func (p *Program) intakeConfig() requests.IntakeConfig {
	c := &p.Config.Intake
	_, closing := p.stopTimes()
	return requests.IntakeConfig{
		GroupMax: min(groupMax, c.LineMax), LineMax: c.LineMax, Committers: p.committers(),
		DepthMax: c.DepthMax, TenantSharePercent: c.TenantShare, AgeMax: p.Config.Lanes.QueueAgeMax,
		Metered: p.Config.Metered.On, StopTimeout: closing / 2,
	}
}

// stopTimes share out STOP_WITHIN, but for the time of the flush: how long calls in flight and running wakes may take to
// end, and what is left for what closes after them, the last group's commit among it.
func (p *Program) stopTimes() (working, closing time.Duration) {
	within := p.Config.StopWithin - p.flushTime()
	working = within * 7 / 9
	return working, within - working
}

// flushTime is how long a program that ends waits for what telemetry still has to send.
func (p *Program) flushTime() time.Duration { return p.Config.StopWithin / 9 }
