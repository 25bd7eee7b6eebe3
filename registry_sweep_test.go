package tenure

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// crowd is a fleet of which all but the leader fall silent at once. All is virtual time.
type crowd struct {
	*registryBubble
	leader  *livingInstance
	resign  func() // ends the leader's sweeps
	size    int
	options RegistryOptions
	cut     time.Time
}

// inCrowd runs act when a fleet of so many has been watched for long enough. Its beats are spread
// over an interval, or come together.
func inCrowd(t *testing.T, size int, together bool, options RegistryOptions, act func(*crowd)) {
	t.Helper()
	inRegistryBubble(t, func(f *registryBubble) {
		configure := func(o *Options) {
			o.Registry = options
			if !together {
				o.random = nil
			}
		}
		complete, err := completed(configure)
		require.NoError(t, err)
		c := &crowd{registryBubble: f, size: size, options: complete.Registry}
		for i := range size {
			m := f.member(fmt.Sprint("i", i), fmt.Sprint("i", i), configure)
			if i == 0 {
				c.leader, c.resign = m, m.leads()
				defer func() { c.resign() }()
			}
			if !together {
				f.pass(c.options.HeartbeatInterval / time.Duration(size))
			}
		}
		f.pass(c.options.DriftedAfter + 2*c.options.SweepInterval + time.Second)
		c.leader.when(time.Now())
		c.cut = time.Now()
		act(c)
	})
}

// downs are the removals since it was last asked.
func (c *crowd) downs() (at []time.Duration, holds int) {
	c.leader.mu.Lock()
	defer c.leader.mu.Unlock()
	for _, e := range c.leader.events {
		switch e.Type {
		case EventDown:
			at = append(at, e.Time.Sub(c.cut))
		case EventSweepHeld:
			holds++
		}
	}
	c.leader.events = nil
	return at, holds
}

// mayGo is how many of so many instances may be removed within two beats.
func mayGo(instances int) int { return max(1, instances/4) }

// holdsUntilGone is how many times a DownAfter passes until so many dead of so many instances are
// all removed.
func holdsUntilGone(instances, dead int) (rounds int) {
	for ; dead > 0; rounds++ {
		gone := min(dead, mayGo(instances))
		instances, dead = instances-gone, dead-gone
	}
	return rounds
}

// capped fails if more were removed within two beats than may be.
func (c *crowd) capped(removed []time.Duration) {
	c.Helper()
	for first, at := range removed {
		last := first
		for last < len(removed) && removed[last] < at+2*c.options.HeartbeatInterval {
			last++
		}
		require.LessOrEqual(c, last-first, mayGo(c.size-first), "removed within two beats from %v on: %v", at, removed[first:last])
	}
}

var crowds = map[string]struct {
	size     int
	together bool
	options  RegistryOptions
}{
	"60, sweeps each 1 s":           {60, false, RegistryOptions{SweepInterval: time.Second}},
	"60, sweeps each 2 s":           {60, false, RegistryOptions{SweepInterval: 2 * time.Second}},
	"60, sweeps each 10 s":          {60, false, RegistryOptions{}},
	"60, sweeps each 30 s":          {60, false, RegistryOptions{SweepInterval: 30 * time.Second}},
	"60, sweeps each 2 s, in step":  {60, true, RegistryOptions{SweepInterval: 2 * time.Second}},
	"60, sweeps each 10 s, in step": {60, true, RegistryOptions{}},
	"40, beats 30 s, sweeps 5 s":    {40, false, RegistryOptions{HeartbeatInterval: 30 * time.Second, SweepInterval: 5 * time.Second}},
	"20, down right after drifted":  {20, false, RegistryOptions{DriftedAfter: 30 * time.Second, DownAfter: 31 * time.Second, SweepInterval: time.Second}},
	"20, seldom swept":              {20, false, RegistryOptions{SweepInterval: 2 * time.Minute}},
	"5":                             {5, false, RegistryOptions{}},
	"3":                             {3, false, RegistryOptions{}},
	"2":                             {2, false, RegistryOptions{}},
}

// TestP9_CrowdThatIsCutOff: whatever the interval of the sweeps and the phase of the beats, a crowd
// that is cut off loses at most a quarter, and is reported once. All of it comes back.
func TestP9_CrowdThatIsCutOff(t *testing.T) {
	for name, test := range crowds {
		if simnet.Race && test.size == 60 && test.options.SweepInterval != time.Second {
			continue // `make bugs` runs them without the race detector
		}
		t.Run(name, func(t *testing.T) {
			together(t)
			inCrowd(t, test.size, test.together, test.options, func(c *crowd) {
				away := c.options.DownAfter + c.options.SweepInterval + max(2*c.options.HeartbeatInterval, c.options.DownAfter/2)
				for i := 1; i < c.size; i++ {
					c.net.Partition(fmt.Sprint("i", i), simnet.Both, away)
				}
				c.pass(away - time.Second)
				removed, holds := c.downs()
				c.capped(removed)
				first := slices.IndexFunc(removed, func(at time.Duration) bool { return at >= removed[0]+c.options.DownAfter })
				if first < 0 {
					first = len(removed)
				}
				require.Equal(c, mayGo(c.size), first, "the rest has another DownAfter: %v", removed)
				if c.size > 2 && first == len(removed) {
					require.Equal(c, 1, holds, "reported once")
				}
				c.pass(time.Minute)
				c.redis.Do(func(m *miniredis.Miniredis) {
					ids, _ := m.HKeys("waf:cluster:instances")
					require.Len(c, ids, c.size)
				})
			})
		})
	}
}

// TestDeadCrowdIsRemoved: of a crowd that is dead a quarter of all goes each time that a hold ends.
func TestDeadCrowdIsRemoved(t *testing.T) {
	for name, test := range crowds {
		if test.size == 60 && (simnet.Race || test.together || test.options.SweepInterval != 30*time.Second) {
			continue // an hour of each takes long, and shows the same
		}
		t.Run(name, func(t *testing.T) {
			together(t)
			inCrowd(t, test.size, test.together, test.options, func(c *crowd) {
				for i := 1; i < c.size; i++ {
					c.crash(fmt.Sprint("i", i))
				}
				turns := holdsUntilGone(c.size, c.size-1)
				bound := c.options.HeartbeatInterval + times(turns, c.options.DownAfter+c.options.SweepInterval+time.Second)
				c.pass(bound)
				removed, _ := c.downs()
				c.capped(removed)
				require.Len(c, removed, c.size-1, "within %v", bound)
				require.GreaterOrEqual(c, removed[len(removed)-1], times(turns-1, c.options.DownAfter))
			})
		})
	}
}

// TestNobodyDriftsInAnOutage: when all are silent because Redis was away, or because its clock was
// set, nobody is said to have drifted: they have two beats of time from when the sweeper sees that.
func TestNobodyDriftsInAnOutage(t *testing.T) {
	outages := []time.Duration{20 * time.Second, 50 * time.Second, 70 * time.Second, 90 * time.Second, 2 * time.Minute, 10 * time.Minute}
	if simnet.Race {
		outages = outages[2:4]
	}
	everybody := func(c *crowd, d time.Duration) {
		for name := range c.members {
			c.net.Partition(name, simnet.Both, d)
		}
	}
	for name, act := range map[string]func(c *crowd, d time.Duration){
		"Redis is away":          func(c *crowd, d time.Duration) { c.redis.Restart(true, d) },
		"Redis stands still":     func(c *crowd, d time.Duration) { c.redis.Pause(d) },
		"everybody is cut off":   everybody,
		"its clock is set ahead": func(c *crowd, d time.Duration) { c.redis.StepClock(d) },
		"another leader begins": func(c *crowd, d time.Duration) {
			everybody(c, d)
			c.pass(d - time.Second)
			c.resign()
			c.pass(time.Second)
			c.resign = c.leader.leads()
		},
	} {
		t.Run(name, func(t *testing.T) {
			together(t)
			inCrowd(t, 12, false, RegistryOptions{}, func(c *crowd) {
				for _, d := range outages {
					act(c, d)
					c.pass(d + 5*time.Minute)
					require.Empty(c, c.leader.when(c.cut, EventDrifted, EventDown, EventSweepHeld), "%v", d)
				}
				c.crash("i7")
				c.pass(c.options.DriftedAfter + c.options.SweepInterval + time.Second)
				require.Len(c, c.leader.when(c.cut, EventDrifted), 1)
			})
		})
	}
}

// TestInstancesThatDieOneByOne: each is removed, though they are a crowd for the rule, and no later
// than a hold after its turn.
func TestInstancesThatDieOneByOne(t *testing.T) {
	for _, pause := range []time.Duration{time.Second, 20 * time.Second, time.Minute, 4 * time.Minute, 6 * time.Minute} {
		t.Run(pause.String(), func(t *testing.T) {
			together(t)
			inCrowd(t, 8, false, RegistryOptions{}, func(c *crowd) {
				for i := 1; i < c.size; i++ {
					c.crash(fmt.Sprint("i", i))
					c.pass(pause)
				}
				c.pass(time.Duration(holdsUntilGone(c.size, c.size-1)) * (c.options.DownAfter + c.options.SweepInterval + time.Second))
				removed, holds := c.downs()
				c.capped(removed)
				require.Len(c, removed, c.size-1)
				if pause > c.options.DownAfter {
					require.Zero(c, holds)
				}
			})
		})
	}
}

func times(n int, d time.Duration) time.Duration { return time.Duration(n * int(d)) }
