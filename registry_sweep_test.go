package tenure

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

// TestBeatBesideASpoiltIndex: if the index that only counts rest on belongs to something else, an
// instance that starts takes part all the same, and the leader says what is wrong, once.
func TestBeatBesideASpoiltIndex(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		const words = "waf:cluster:beats:words"
		require.NoError(w, w.rdb.SAdd(w.Context(), words, "mine").Err())
		a := w.member("a")
		for range 2 {
			a.beats()
		}
		require.Equal(w, []string{"instance_registered"}, a.told())
		require.Contains(w, w.record("a"), `"status":"active"`)
		s := a.watched()
		for range 2 {
			a.pass(s)
			s.count(w.Context())
		}
		require.NoError(w, a.Registry.bus.flush(time.Now().Add(time.Minute)))
		a.mu.Lock()
		require.Len(w, a.events, 1)
		failed := a.events[0]
		a.mu.Unlock()
		require.Equal(w, EventSweepFailed, failed.Type)
		require.ErrorIs(w, failed.Err, ErrMisconfigured)
		require.ErrorContains(w, failed.Err, "the key "+words+" belongs to something else")

		require.NoError(w, w.rdb.Del(w.Context(), words).Err())
		s.count(w.Context())
		require.Equal(w, Counts{Active: 1, Total: 1}, *s.counts)
	})
}

// TestSweepBesideASpoiltKey: if a key of the registry belongs to something else, a sweep changes
// nothing, and nobody leaves or is adopted. It could not be said what was done, so that nobody
// would hear of that later either.
func TestSweepBesideASpoiltKey(t *testing.T) {
	for _, key := range []string{"words", "hold", "removed", "lost"} {
		t.Run(key, func(t *testing.T) {
			onRegistries(t, func(w *registryCluster) {
				key := "waf:cluster:beats:" + key
				leader, dead := w.member("leader"), w.member("dead")
				leader.beats()
				dead.beats()
				s := leader.watched()
				_ = leader.told()
				w.silence(400*time.Second, "dead")
				require.NoError(w, w.rdb.ZAdd(w.Context(), "waf:cluster:beats", redis.Z{Score: 1, Member: "gone"}).Err()) // its record is
				require.NoError(w, w.rdb.Del(w.Context(), key).Err())
				require.NoError(w, w.rdb.SAdd(w.Context(), key, "mine").Err())
				require.ErrorIs(w, s.pass(w.Context()), ErrMisconfigured)
				require.NotEmpty(w, w.record("dead"))
				require.NoError(w, w.rdb.ZScore(w.Context(), "waf:cluster:beats", "gone").Err())
				if strings.HasSuffix(key, "words") {
					_, err := leader.store.Remove(w.Context(), "dead", dead.incarnation)
					require.ErrorIs(w, err, ErrMisconfigured)
					require.NotEmpty(w, w.record("dead"))
					w.foreign("waf-0", strings.Replace(foreignRecord, "active", "draining", 1))
					_, err = leader.store.Adopt(w.Context(), leader.incarnation, []string{"waf-0"})
					require.ErrorIs(w, err, ErrMisconfigured)
					require.ErrorIs(w, w.rdb.ZScore(w.Context(), "waf:cluster:beats", "waf-0").Err(), redis.Nil)
					require.NoError(w, w.rdb.HDel(w.Context(), "waf:cluster:instances", "waf-0").Err())
				}

				require.NoError(w, w.rdb.Del(w.Context(), key).Err())
				s.watches(w.T, leader.opts.DriftedAfter)
				leader.pass(s)
				require.ElementsMatch(w, []string{"instance_left gone", "instance_down dead"}, leader.told())
				var log []string
				changes, err := leader.Recent(w.Context(), 2)
				require.NoError(w, err)
				for _, c := range changes {
					log = append(log, string(c.Type)+" "+c.InstanceID)
				}
				require.ElementsMatch(w, []string{"left gone", "down dead"}, log)
			})
		})
	}
}

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
		case EventInstanceDown:
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
		if test.size == 60 && (simnet.Race || testing.Short()) {
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
		if test.size == 60 && (testing.Short() || simnet.Race || test.together || test.options.SweepInterval != 30*time.Second) {
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
	if testing.Short() || simnet.Race {
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
					require.Empty(c, c.leader.when(c.cut, EventInstanceDrifted, EventInstanceDown, EventSweepHeld), "%v", d)
				}
				c.crash("i7")
				c.pass(c.options.DriftedAfter + c.options.SweepInterval + time.Second)
				require.Len(c, c.leader.when(c.cut, EventInstanceDrifted), 1)
			})
		})
	}
}

// TestInstancesThatDieOneByOne: each is removed, though they are a crowd for the rule, and no later
// than a hold after its turn.
func TestInstancesThatDieOneByOne(t *testing.T) {
	pauses := []time.Duration{time.Second, 6 * time.Minute, 20 * time.Second, time.Minute, 4 * time.Minute}
	if testing.Short() {
		pauses = pauses[:2]
	}
	for _, pause := range pauses {
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

func TestSweepRemovesWhoIsDown(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		dead, alive, leader := w.member("dead"), w.member("alive"), w.member("leader")
		dead.beats()
		alive.beats()
		for i := range 6 { // of eight two may be removed
			w.member(fmt.Sprint("fresh", i)).beats()
		}
		s := leader.watched()
		w.silence(301*time.Second, "dead")
		w.silence(299*time.Second, "alive")
		leader.pass(s)
		require.Equal(w, []string{"instance_down dead", "instance_drifted alive"}, leader.told())
		require.Equal(w, "alive drifted", leader.list()[0])
		require.Empty(w, w.record("dead"))
		require.Zero(w, w.rdb.Exists(w.Context(), "waf:cluster:instance:dead:heartbeat").Val())
		require.Equal(w, int64(7), w.rdb.ZCard(w.Context(), "waf:cluster:beats").Val())
	})
}

// TestP9_BeatBetweenLookAndSweep: who beats after it was listed as down stays.
// TestSweepOnDemand: the leader sweeps when it is asked to, by its own rules, and nobody else does.
func TestSweepOnDemand(t *testing.T) {
	inCluster(t, func(c *cluster) {
		slow := func(o *Options) { o.Registry.SweepInterval = time.Hour }
		a, b := c.pair(slow)
		require.ErrorIs(c, b.Registry().Sweep(background), ErrNotLeader)
		require.NoError(c, a.Registry().Sweep(background))
		b.crash()
		c.pass(90 * time.Second)
		require.Empty(c, a.told(EventInstanceDrifted))
		require.NoError(c, a.Registry().Sweep(background)) // it begins to watch
		c.pass(time.Minute)
		require.NoError(c, a.Registry().Sweep(background))
		require.Empty(c, a.told(EventInstanceDown))
		require.Equal(c, []string{"instance_drifted b"}, a.told(EventInstanceDrifted))

		c.refuse("tenure:beats", "LOADING Redis is loading the dataset in memory")
		require.ErrorIs(c, a.Registry().Sweep(background), ErrUnreachable)
		c.redis.Intercept(nil)
		answers := make(chan error, 2)
		for range 2 {
			go func() { answers <- a.Registry().Sweep(background) }()
		}
		require.NoError(c, <-answers)
		require.NoError(c, <-answers)
		gone, cancel := context.WithCancel(background)
		cancel()
		require.ErrorIs(c, a.Registry().Sweep(gone), context.Canceled)
		_, err := a.stop()
		require.NoError(c, err)
		require.ErrorIs(c, a.Registry().Sweep(background), ErrNotLeader)
		off := c.member("off", func(o *Options) { o.Registry.SweepInterval = -1 })
		require.ErrorIs(c, off.Registry().Sweep(background), ErrMisconfigured)
	})
}

func TestP9_BeatBetweenLookAndSweep(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		require.Equal(w, []string{"fresh", "down"}, w.beatBetweenLookAndSweep())
	})
}

func (w *registryCluster) beatBetweenLookAndSweep() []string {
	a, b, leader := w.member("a"), w.member("b"), w.member("leader")
	a.beats()
	b.beats()
	w.silence(400*time.Second, "a", "b")
	listed, err := leader.store.Look(w.Context(), store.Look{Silence: time.Minute})
	require.NoError(w, err)
	require.Equal(w, []string{"a", "b"}, listed.IDs)
	a.beats()
	reply, err := leader.store.Sweep(w.Context(), store.Sweep{
		Drifted: time.Minute, Down: 300 * time.Second, Window: 30 * time.Second, Mark: true, Remove: true, Incarnation: "leader-1", IDs: listed.IDs,
	})
	require.NoError(w, err)
	return reply.Verdicts
}

// foreignStory is what becomes of instances of other programs.
var foreignStory = []string{
	"[instance_joined strange instance_joined waf-0 instance_joined waf-1] strange active, waf-0 active, waf-1 active",
	"[instance_recovered waf-0] strange active, waf-0 active, waf-1 active", // its heartbeat key is there
	"[instance_drifted waf-0] strange drifted, waf-0 drifted, waf-1 active",
	`{"instance_id":"waf-0", "status":"drifted","last_heartbeat":1}`,
	`{"checks":{"status":"ok"}}`,
	"[instance_down waf-0 sweep_held 1] strange down, waf-1 active", // of three one may go
	"[instance_down strange] waf-1 active",
	"[instance_drifted waf-1] waf-1 drifted", // who begins to sweep does not take it for down
}

// TestForeignInstances: records of other programs are adopted, watched by their heartbeat keys and
// removed. (On miniredis and on Redis alike.)
func TestForeignInstances(t *testing.T) {
	onRegistries(t, func(w *registryCluster) { require.Equal(w, foreignStory, w.foreignInstances()) })
}

func (w *registryCluster) foreignInstances() (story []string) {
	ctx := w.Context()
	leader := w.member("leader")
	tell := func() {
		story = append(story, fmt.Sprint(sorted(leader.told()), " ", strings.Join(leader.list(), ", ")))
	}
	fresh := strconv.FormatInt(w.now()/1000, 10)
	w.foreign("waf-0", `{"instance_id":"waf-0", "status" : "drifted","last_heartbeat":1}`)
	w.foreign("waf-1", strings.Replace(foreignRecord, "1734567950", fresh, 1))
	w.foreign("strange", `{"checks":{"status":"ok"}}`) // that is not its own
	s := leader.watched()
	tell()

	w.silence(5*time.Minute, "waf-0", "waf-1", "strange")
	leader.pass(s)
	tell()

	w.silence(70*time.Second, "waf-0", "strange")
	w.rdb.Del(ctx, "waf:cluster:instance:waf-0:heartbeat", "waf:cluster:instance:strange:heartbeat")
	leader.pass(s)
	tell()
	story = append(story, w.record("waf-0"), w.record("strange"))

	w.silence(301*time.Second, "strange")
	w.silence(302*time.Second, "waf-0")
	leader.pass(s)
	tell()
	w.rdb.Del(ctx, "waf:cluster:beats:hold", "waf:cluster:beats:removed") // they expire
	leader.pass(s)
	tell()

	w.silence(time.Hour, "waf-1")
	w.rdb.Del(ctx, "waf:cluster:instance:waf-1:heartbeat")
	s = leader.watched()
	leader.pass(s)
	tell()
	return story
}

// TestForeignRecordIsFoundCheaply: all records are read at the beginning, when their number has
// changed, and not else.
func TestForeignRecordIsFoundCheaply(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		leader, a := w.member("leader"), w.member("a")
		a.beats()
		w.foreign("not an ID", foreignRecord) // cannot be adopted, for ever
		counting := &countingRegistry{Registry: leader.Registry.store}
		leader.Registry.store = counting
		s := leader.watched()
		require.Equal(w, 1, counting.scans)
		for range 5 {
			leader.pass(s)
		}
		require.Equal(w, 1, counting.scans)
		w.foreign("waf-0", foreignRecord)
		leader.pass(s)
		leader.pass(s)
		require.Equal(w, 2, counting.scans)
		require.Equal(w, []string{"instance_joined waf-0"}, leader.told())
		s.watches(w.T, leader.opts.DownAfter-3*leader.opts.SweepInterval) // one has come and one has gone at the same time
		for range 4 {
			leader.pass(s)
		}
		require.Equal(w, 3, counting.scans)
	})
}

type countingRegistry struct {
	store.Registry
	scans int
}

func (c *countingRegistry) Scan(ctx context.Context, cursor string, onlyNew bool) (store.ScanReply, error) {
	c.scans++
	return c.Registry.Scan(ctx, cursor, onlyNew)
}

// heldStory is how many of 40 instances are left after each step. 26 of them are down, four have
// drifted, ten beat.
var heldStory = []string{
	"30 held 20",     // ten may go
	"30", "30", "30", // in a hold, also for the next leader, and when Redis has lost the count
	"30 held 20", // the hold was lost, and those ten were removed less than two beats ago
	"23 held 13", // two beats and a hold later a quarter may go again
	"18 held 8", "14 held 4",
	"14",              // nobody is down
	"11 held 1", "10", // the last four are
}

// TestCrowdIsHeld: at most a quarter is removed within two beats, and the rest is held for another
// DownAfter, across passes and leaders.
func TestCrowdIsHeld(t *testing.T) {
	onRegistries(t, func(w *registryCluster) { require.Equal(w, heldStory, w.heldCrowd()) })
}

func (w *registryCluster) heldCrowd() (story []string) {
	ctx := w.Context()
	const instances, hold, removed = "waf:cluster:instances", "waf:cluster:beats:hold", "waf:cluster:beats:removed"
	for i := range 40 {
		w.member(fmt.Sprint("i", 10+i)).beats()
	}
	for i := range 26 {
		w.silence(500*time.Second-time.Duration(i)*time.Second, fmt.Sprint("i", 10+i))
	}
	late := []string{"i36", "i37", "i38", "i39"}
	w.silence(200*time.Second, late...)
	leader, next := w.member("leader"), w.member("next")
	sweeps := map[*registryInstance]*testSweeper{leader: leader.watched(), next: next.watched()}
	pass := func(by *registryInstance, expired ...string) {
		w.rdb.Del(ctx, append(expired, "nothing")...)
		for now, looks := w.now(), 0; w.now() == now && looks < 1000; looks++ {
			continue // a hold is known by the millisecond in which it began
		}
		by.told()
		by.pass(sweeps[by])
		step := fmt.Sprint(w.rdb.HLen(ctx, instances).Val())
		for i, line := range by.told() {
			if held, is := strings.CutPrefix(line, "sweep_held "); is {
				require.Zero(w, i, "the hold is reported before those who were removed")
				step += " held " + held
			}
		}
		story = append(story, step)
		require.Equal(w, w.rdb.HLen(ctx, instances).Val(), w.rdb.ZCard(ctx, "waf:cluster:beats").Val())
	}
	pass(leader)
	require.Empty(w, w.record("i19"), "the longest silent go first")
	pass(leader)
	pass(next)
	pass(next, removed)
	for i := range 10 {
		w.rdb.ZAdd(ctx, removed, redis.Z{Score: float64(w.now() - 1000), Member: fmt.Sprint("i", 10+i)})
	}
	pass(next, hold)
	for range 4 {
		pass(leader, hold, removed)
	}
	w.silence(400*time.Second, late...)
	pass(leader, hold, removed)
	pass(leader, hold, removed)
	return story
}

// TestHoldWithoutEndIsBounded: nobody else's key wedges the sweeps.
func TestHoldWithoutEndIsBounded(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		leader, a := w.member("leader"), w.member("a")
		a.beats()
		w.silence(400*time.Second, "a")
		s := leader.watched()
		for _, value := range []string{"99999999999999", "1 9999999999 1 leader-1", "1e99", "x", ""} {
			require.NoError(w, w.rdb.Set(w.Context(), "waf:cluster:beats:hold", value, 0).Err())
			if strings.HasPrefix(value, "1 ") {
				require.NoError(w, w.rdb.ZAdd(w.Context(), "waf:cluster:beats:removed", redis.Z{Score: 1e15, Member: "of another time"}).Err())
			}
			leader.pass(s)
			left := w.rdb.PTTL(w.Context(), "waf:cluster:beats:hold").Val()
			require.True(w, 0 < left && left <= leader.opts.DownAfter, "%q: %v", value, left)
			require.NotEmpty(w, w.record("a"))
		}
	})
}

// TestRemovalsAheadOfTheClockAreBounded: they count against the cap for two beats, not until
// Redis's clock is there.
func TestRemovalsAheadOfTheClockAreBounded(t *testing.T) {
	for name, ahead := range map[string]float64{"a clock set back": float64(time.Now().Add(7 * 24 * time.Hour).UnixMilli()), "forged": 9e15} {
		t.Run(name, func(t *testing.T) {
			onRegistries(t, func(w *registryCluster) {
				const removed = "waf:cluster:beats:removed"
				leader := w.member("leader")
				for i := range 3 {
					w.member(fmt.Sprint("i", i)).beats()
				}
				for i := range 1500 {
					require.NoError(w, w.rdb.ZAdd(w.Context(), removed, redis.Z{Score: ahead, Member: fmt.Sprint("x", i)}).Err())
				}
				w.silence(400*time.Second, "i0")
				s := leader.watched()
				leader.pass(s)
				require.NotEmpty(w, w.record("i0"), "they were removed just now, for all that is known")
				require.Zero(w, w.rdb.ZCount(w.Context(), removed, fmt.Sprint(w.now()+1000), "+inf").Val())
				require.Equal(w, int64(1000), w.rdb.ZCard(w.Context(), removed).Val())
				left, window := w.rdb.PTTL(w.Context(), removed).Val(), 2*leader.opts.HeartbeatInterval
				require.True(w, 0 < left && left <= window+time.Second, left)

				then := w.rdb.ZRangeWithScores(w.Context(), removed, 0, -1).Val()
				for i := range then {
					then[i].Score -= float64(window.Milliseconds() + 1)
				}
				require.NoError(w, w.rdb.ZAdd(w.Context(), removed, then...).Err())
				w.rdb.Del(w.Context(), "waf:cluster:beats:hold")
				leader.pass(s)
				require.Empty(w, w.record("i0"))
			})
		})
	}
}

// TestJunkAmongTheBeatsHoldsNobody: what is no ID cannot be swept, and does not count as silent.
func TestJunkAmongTheBeatsHoldsNobody(t *testing.T) {
	w := miniRegistry(t)
	leader := w.member("leader")
	for i := range 4 {
		w.member(fmt.Sprint("i", i)).beats()
		w.rdb.ZAdd(t.Context(), "waf:cluster:beats", redis.Z{Score: float64(i / 2), Member: fmt.Sprint("no ID ", i)})
	}
	w.silence(400*time.Second, "i0")
	s := leader.watched()
	leader.pass(s)
	require.Equal(t, []string{"instance_down i0"}, leader.told())
	require.Equal(t, int64(3), w.rdb.ZCard(t.Context(), "waf:cluster:beats").Val())
}

// TestHintsOfACrowdAreFew: a sweep says in few messages what it has changed, and each of them is
// read.
func TestHintsOfACrowdAreFew(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		leader, other := w.member("leader"), w.member("other")
		const crowd = 250
		name := func(i int) string { return fmt.Sprintf("%03d-%s", i, strings.Repeat("x", 100)) }
		for i := range crowd {
			w.foreign(name(i), foreignRecord)
			w.rdb.Del(w.Context(), "waf:cluster:instance:"+name(i)+":heartbeat")
		}
		subscription := w.rdb.Subscribe(w.Context(), "waf:cluster:events")
		defer subscription.Close()
		_, err := subscription.Receive(w.Context())
		require.NoError(w, err)
		heard := func(kind EventType) {
			for messages := 1; ; messages++ {
				ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
				message, err := subscription.ReceiveMessage(ctx)
				cancel()
				require.NoError(w, err)
				h, ok := store.ParseHint(message.Payload)
				require.True(w, ok, "%d bytes", len(message.Payload))
				other.hint(h)
				require.NoError(w, other.Registry.bus.flush(time.Now().Add(time.Minute)))
				if len(other.events) == crowd {
					require.Len(w, other.told(), crowd)
					require.LessOrEqual(w, messages, crowd/20)
					return
				}
			}
		}
		s := leader.watched()
		heard(EventInstanceJoined)
		for i := range crowd {
			w.silence(70*time.Second, name(i))
		}
		leader.pass(s)
		heard(EventInstanceDrifted)
	})
}

// TestSweepThatIsRepeated: a client repeats a sweep when a reply is lost. The second one removes
// nobody else, and is answered with the same hold.
func TestSweepThatIsRepeated(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		ids := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, id := range ids {
			w.member(id).beats()
		}
		w.silence(400*time.Second, ids[:6]...)
		leader := w.member("leader")
		c := store.Sweep{
			Drifted: time.Minute, Down: 300 * time.Second, Window: 30 * time.Second, Mark: true, Remove: true, Incarnation: "leader-1", IDs: ids,
		}
		first, err := leader.store.Sweep(w.Context(), c)
		require.NoError(w, err)
		require.Equal(w, []string{"down", "down", "drifted", "drifted", "drifted", "drifted", "fresh", "fresh"}, first.Verdicts)
		require.Equal(w, 4, first.Held)
		require.InDelta(w, 300, w.rdb.PTTL(w.Context(), "waf:cluster:beats:hold").Val().Seconds(), 20)
		require.InDelta(w, 30, w.rdb.PTTL(w.Context(), "waf:cluster:beats:removed").Val().Seconds(), 20)
		second, err := leader.store.Sweep(w.Context(), c)
		require.NoError(w, err)
		require.Equal(w, []string{"fresh", "fresh", "silent", "silent", "silent", "silent", "fresh", "fresh"}, second.Verdicts)
		require.Equal(w, []any{first.HeldSince, first.Held}, []any{second.HeldSince, second.Held})
		c.Incarnation = "another"
		third, err := leader.store.Sweep(w.Context(), c)
		require.NoError(w, err)
		require.Zero(w, third.HeldSince, "it is not its own")
	})
}

// TestEndedTermRemovesNobody: the term is looked at before each call that removes.
func TestEndedTermRemovesNobody(t *testing.T) {
	w := miniRegistry(t)
	leader, a := w.member("leader"), w.member("a")
	a.beats()
	s := leader.watched()
	w.silence(400*time.Second, "a")
	s.term = Term{}
	require.ErrorIs(t, s.pass(t.Context()), errTermOver)
	require.Equal(t, []string{"a down"}, leader.list())
}

// TestPagesOfEqualScores: more instances than a page has fell silent in the same millisecond.
func TestPagesOfEqualScores(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		leader := w.member("leader")
		now := w.now()
		pipe := w.rdb.Pipeline()
		for i := range 450 {
			id := fmt.Sprintf("waf-%03d", i)
			pipe.HSet(w.Context(), "waf:cluster:instances", id, strings.Replace(foreignRecord, "waf-0", id, 1))
			pipe.ZAdd(w.Context(), "waf:cluster:beats", redis.Z{Score: float64(now - 70_000), Member: id})
		}
		_, err := pipe.Exec(w.Context())
		require.NoError(w, err)
		leader.pass(leader.watched())
		told := leader.told()
		require.Len(w, told, 450)
		counts, err := leader.Counts(w.Context())
		require.NoError(w, err)
		require.Equal(w, Counts{Drifted: 450, Total: 450}, counts)
	})
}
