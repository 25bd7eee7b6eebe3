package virtual

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/hook"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// The full stack in virtual time: electors on real go-redis clients and a real miniredis, on a
// network and a clock that belong to the test (testing/synctest, internal/proof/simnet). A
// cluster is one such Redis with its instances; a checker, which is always on, holds
// what happens in it against the promises.

const (
	hotTTL      = 3 * time.Second // of the hot class, as all directed scenarios
	hotShutdown = 5 * time.Second
	roundTrip   = 4 * time.Millisecond // longest round trip on the healthy network
	namespace   = "tenure"
	leaderKey   = "tenure:leader"
	termKey     = leaderKey + ":term"
)

// setup is what a world is made of. The zero value is a healthy world of five like
// instances.
type setup struct {
	pace      *pace                                     // nil: hot
	instances int                                       // 0: 5
	redis     simnet.ServerOptions                      // zero: an hour old, on time
	options   func(number int, options *tenure.Options) // changes the options of an instance; nil: nothing
	client    func(*redis.Options)                      // changes those of its client; nil: nothing
	drain     time.Duration                             // leader work takes up to this long to return when its context is done
	kept      bool                                      // Redis keeps its data and its clock goes on: P4 is held against the lease in Redis
	tasks     bool                                      // coordinators with a registry and two tasks, instead of electors
	asks      bool                                      // there is an operator
	roles     int                                       // more roles of each process, beside the one that all else is about; with tasks
	spread    bool                                      // these are spread
	calm      bool                                      // nothing but crashes and resignations: P7 is held against each hand-over
	trace     int                                       // events kept for a failure; 0: simnet's default
	report    func(wrong []problem)                     // takes what was violated; nil: the test fails
}

// cluster is one Redis, its instances and the checker.
type cluster struct {
	*testing.T
	setup     setup
	pace      *pace
	seed      uint64
	rand      *rand.Rand // of the goroutine of the test
	net       *simnet.Network
	redis     *simnet.Server
	check     *checker
	operator  *operator // nil: there is none
	instances []*instance
	running   sync.WaitGroup // every life, and what is started beside
}

// inCluster runs fn in a world of its own, started, and ends it: every process must stop in
// time and leave nothing behind. It returns the digest of all that happened before.
func inCluster(t *testing.T, seed uint64, setup setup, fn func(*cluster)) (digest uint64) {
	t.Helper()
	if setup.instances == 0 {
		setup.instances = 5
	}
	if setup.pace == nil {
		setup.pace = hot
	}
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{T: t, setup: setup, pace: setup.pace, seed: seed, rand: newRand(seed, "test", 0)}
		c.net = simnet.New(simnet.Options{Seed: seed, Trace: setup.trace})
		defer c.net.Close()
		c.redis = c.net.NewServer(simnet.Addr, setup.redis)
		c.check = newChecker(c)
		if setup.asks {
			c.operator = newOperator(c)
		}
		c.redis.Label(label)
		if setup.tasks {
			c.redis.Watch(c.check.tap.see)
		}
		defer func() {
			if t.Failed() {
				t.Logf("seed %d, the end of its trace:\n%s", seed, c.net.Trace.Tail(120))
			}
		}()
		for number := range setup.instances {
			c.instances = append(c.instances, &instance{cluster: c, number: number, name: fmt.Sprint("i", number)})
		}
		over := make(chan struct{})
		first := c.net.Stagger("prober") // here: whoever is asked for first has the first slot
		c.running.Go(func() { c.probe(first, over) })
		defer func() { // also if the test has ended early
			// Before the stops: each cancels a context, whose children hear of it in the order of a
			// map.
			digest = c.net.Trace.Digest()
			for _, instance := range c.instances {
				instance.stop()
			}
			close(over)
			c.running.Wait()
			c.check.finish()
		}()
		time.Sleep(c.net.Stagger("test"))
		fn(c)
	})
	return digest
}

// scriptNames are the names of the scripts, by hash.
var scriptNames = func() map[string]string {
	names := map[string]string{}
	for name, digest := range (*hook.Scripts)().Digests() {
		names[digest] = name
	}
	return names
}()

// label is what a trace shows of a command: of a script its name.
func label(args []string) string {
	text := args[1]
	if strings.EqualFold(args[0], "SUBSCRIBE") { // after an outage go-redis names the channels in the order of a map
		text = slices.Min(args[1:])
	}
	if strings.EqualFold(args[0], "EVAL") {
		sum := sha1.Sum([]byte(text))
		text = hex.EncodeToString(sum[:])
	}
	if name, ours := scriptNames[text]; ours {
		return name
	}
	return text[:min(len(text), 40)]
}

// newRand is a generator that depends on the seed, the name and the number only.
func newRand(seed uint64, name string, number int) *rand.Rand {
	stream := uint64(number)
	for _, c := range []byte(name) {
		stream = stream*1_000_003 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, stream))
}

// note adds to the trace, and with it to the digest.
func (c *cluster) note(host, what, detail string, number int64) {
	c.net.Trace.Add(simnet.Event{At: c.net.Elapsed(), Host: host, What: what, Detail: detail, N: number})
}

// probe asks everybody now and then, from first on at instants that are nobody else's, until over
// is closed.
func (c *cluster) probe(first time.Duration, over <-chan struct{}) {
	time.Sleep(first)
	pulse := time.NewTicker(c.pace.probe)
	defer pulse.Stop()
	for {
		select {
		case <-over:
			return
		case <-pulse.C:
			c.check.sample()
		}
	}
}

// start boots every instance.
func (c *cluster) start() {
	for _, instance := range c.instances {
		instance.boot()
	}
}

// between draws a duration, in steps of 10 µs: it keeps the instants of the test apart from those
// of the hosts.
func (c *cluster) between(lo, hi time.Duration) time.Duration {
	const step = 10 * time.Microsecond
	return lo + time.Duration(c.rand.Int64N(int64((hi-lo)/step)+1))*step
}

// leader returns the instance that believes it leads, nil if none does.
func (c *cluster) leader() *instance {
	for _, instance := range c.instances {
		if life := instance.life.Load(); life != nil && life.elector.IsLeader() {
			return instance
		}
	}
	return nil
}

// awaitLeader returns the next instance that leads, other than but, and how long it took; it fails
// the test after bound.
func (c *cluster) awaitLeader(bound time.Duration, but *instance) (*instance, time.Duration) {
	c.Helper()
	const step = 100 * time.Microsecond
	for waited := time.Duration(0); waited <= bound; waited += step {
		if leader := c.leader(); leader != nil && leader != but {
			return leader, waited
		}
		time.Sleep(step)
	}
	c.Fatalf("%v: nobody leads within %v", c.net.Elapsed(), bound)
	return nil, 0
}

// waitUntil returns how long it took until done; it fails the test after bound.
func (c *cluster) waitUntil(bound time.Duration, what string, done func() bool) time.Duration {
	c.Helper()
	const step = 100 * time.Microsecond
	for waited := time.Duration(0); waited <= bound; waited += step {
		if done() {
			return waited
		}
		time.Sleep(step)
	}
	c.Fatalf("%v: not within %v: %s", c.net.Elapsed(), bound, what)
	return 0
}

// losing returns a failover to a replica that misses all writes from now on.
func (c *cluster) losing() (failover func(clock time.Duration)) {
	snapshot, undo := c.redis.Snapshot(), c.check.tap.rewind()
	return func(clock time.Duration) {
		undo()
		c.redis.Failover(snapshot, clock)
	}
}

// lease reads the lease and its term hash past the network.
func (c *cluster) lease() (seen leaseSeen) {
	c.redis.Do(func(m *miniredis.Miniredis) {
		seen.holder, _ = m.Get(leaderKey)
		seen.left = m.TTL(leaderKey)
		seen.token = m.HGet(termKey, "token")
		seen.nonce = m.HGet(termKey, "nonce")
		seen.released = m.HGet(termKey, "released") == "1"
	})
	return seen
}

type leaseSeen struct {
	holder, token, nonce string
	left                 time.Duration
	released             bool
}

// is reports whether Redis shows the lease of that very term.
func (l leaseSeen) is(term tenure.Term) bool {
	return l.holder == term.InstanceID && l.token == fmt.Sprint(term.Token) && !l.released
}
