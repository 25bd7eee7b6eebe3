package tenure

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// The full stack in virtual time: electors on real go-redis clients and a real miniredis, on a
// network and a clock that belong to the test (testing/synctest, internal/proof/simnet). A
// virtualWorld is one such Redis with its instances; a virtualChecker, which is always on, holds
// what happens in it against the promises.

const (
	virtualTTL      = 3 * time.Second // of the hot class, as all directed scenarios
	virtualShutdown = 5 * time.Second
	virtualTrip     = 4 * time.Millisecond // longest round trip on the healthy network
	virtualLeader   = "tenure:leader"
	virtualTermHash = virtualLeader + ":term"
)

// virtualSetup is what a world is made of. The zero value is a healthy world of five like
// instances.
type virtualSetup struct {
	pace      *virtualPace                       // nil: hot
	instances int                                // 0: 5
	redis     simnet.ServerOptions               // zero: an hour old, on time
	options   func(number int, options *Options) // changes the options of an instance; nil: nothing
	client    func(*redis.Options)               // changes those of its client; nil: nothing
	drain     time.Duration                      // leader work takes up to this long to return when its context is done
	kept      bool                               // Redis keeps its data and its clock goes on: P4 is held against the lease in Redis
	tasks     bool                               // coordinators with a registry and two tasks, instead of electors
	calm      bool                               // nothing but crashes and resignations: P7 is held against each hand-over
	trace     int                                // events kept for a failure; 0: simnet's default
	report    func(wrong []virtualProblem)       // takes what was violated; nil: the test fails
}

// virtualWorld is one Redis, its instances and the checker.
type virtualWorld struct {
	*testing.T
	setup     virtualSetup
	pace      *virtualPace
	seed      uint64
	rand      *rand.Rand // of the goroutine of the test
	net       *simnet.Network
	redis     *simnet.Server
	check     *virtualChecker
	instances []*virtualInstance
	running   sync.WaitGroup // every life, and what is started beside
}

// inVirtualTime runs fn in a world of its own, started, and ends it: every process must stop in
// time and leave nothing behind. It returns the digest of all that happened.
func inVirtualTime(t *testing.T, seed uint64, setup virtualSetup, fn func(*virtualWorld)) (digest uint64) {
	t.Helper()
	if setup.instances == 0 {
		setup.instances = 5
	}
	if setup.pace == nil {
		setup.pace = virtualHot
	}
	synctest.Test(t, func(t *testing.T) {
		w := &virtualWorld{T: t, setup: setup, pace: setup.pace, seed: seed, rand: virtualRand(seed, "test", 0)}
		w.net = simnet.New(simnet.Options{Seed: seed, Trace: setup.trace})
		defer w.net.Close()
		w.redis = w.net.NewServer(simnet.Addr, setup.redis)
		w.check = newVirtualChecker(w)
		w.redis.Label(virtualLabel)
		if setup.tasks {
			w.redis.Watch(w.check.tap.see)
		}
		defer func() {
			if t.Failed() {
				t.Logf("seed %d, the end of its trace:\n%s", seed, w.net.Trace.Tail(120))
			}
		}()
		for number := range setup.instances {
			w.instances = append(w.instances, &virtualInstance{virtualWorld: w, number: number, name: fmt.Sprint("i", number)})
		}
		over := make(chan struct{})
		w.running.Go(func() { w.probe(over) })
		defer func() { // also where the test has ended early
			for _, instance := range w.instances {
				instance.stop()
			}
			close(over)
			w.running.Wait()
			digest = w.net.Trace.Digest()
			w.check.finish()
		}()
		time.Sleep(w.net.Stagger("test"))
		fn(w)
	})
	return digest
}

// virtualScripts are the names of the scripts, by hash.
var virtualScripts = func() map[string]string {
	names := map[string]string{}
	for name, digest := range contract.Digests() {
		names[digest] = name
	}
	return names
}()

// virtualLabel is what a trace shows of a command: of a script its name.
func virtualLabel(args []string) string {
	text := args[1]
	if strings.EqualFold(args[0], "EVAL") {
		sum := sha1.Sum([]byte(text))
		text = hex.EncodeToString(sum[:])
	}
	if name, ours := virtualScripts[text]; ours {
		return name
	}
	return text[:min(len(text), 40)]
}

// virtualRand is a generator that depends on the seed, the name and the number only.
func virtualRand(seed uint64, name string, number int) *rand.Rand {
	stream := uint64(number)
	for _, c := range []byte(name) {
		stream = stream*1_000_003 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, stream))
}

// note adds to the trace, and with it to the digest.
func (w *virtualWorld) note(host, what, detail string, number int64) {
	w.net.Trace.Add(simnet.Event{At: w.net.Elapsed(), Host: host, What: what, Detail: detail, N: number})
}

// probe asks everybody now and then, at instants that are nobody else's, until over is closed.
func (w *virtualWorld) probe(over <-chan struct{}) {
	time.Sleep(w.net.Stagger("prober"))
	pulse := time.NewTicker(w.pace.probe)
	defer pulse.Stop()
	for {
		select {
		case <-over:
			return
		case <-pulse.C:
			w.check.sample()
		}
	}
}

// start boots every instance.
func (w *virtualWorld) start() {
	for _, instance := range w.instances {
		instance.boot()
	}
}

// between draws a duration, in steps of 10 µs: it keeps the instants of the test apart from those
// of the hosts.
func (w *virtualWorld) between(lo, hi time.Duration) time.Duration {
	const step = 10 * time.Microsecond
	return lo + time.Duration(w.rand.Int64N(int64((hi-lo)/step)+1))*step
}

// leader returns the instance that believes it leads, nil where none does.
func (w *virtualWorld) leader() *virtualInstance {
	for _, instance := range w.instances {
		if life := instance.life.Load(); life != nil && life.elector.IsLeader() {
			return instance
		}
	}
	return nil
}

// awaitLeader returns the next instance that leads, other than but, and how long it took; it fails
// the test after bound.
func (w *virtualWorld) awaitLeader(bound time.Duration, but *virtualInstance) (*virtualInstance, time.Duration) {
	w.Helper()
	const step = 100 * time.Microsecond
	for waited := time.Duration(0); waited <= bound; waited += step {
		if leader := w.leader(); leader != nil && leader != but {
			return leader, waited
		}
		time.Sleep(step)
	}
	w.Fatalf("%v: nobody leads within %v", w.net.Elapsed(), bound)
	return nil, 0
}

// waitUntil returns how long it took until done; it fails the test after bound.
func (w *virtualWorld) waitUntil(bound time.Duration, what string, done func() bool) time.Duration {
	w.Helper()
	const step = 100 * time.Microsecond
	for waited := time.Duration(0); waited <= bound; waited += step {
		if done() {
			return waited
		}
		time.Sleep(step)
	}
	w.Fatalf("%v: not within %v: %s", w.net.Elapsed(), bound, what)
	return 0
}

// lease reads the lease and its term hash past the network.
func (w *virtualWorld) lease() (seen virtualLease) {
	w.redis.Do(func(m *miniredis.Miniredis) {
		seen.holder, _ = m.Get(virtualLeader)
		seen.left = m.TTL(virtualLeader)
		seen.token = m.HGet(virtualTermHash, "token")
		seen.nonce = m.HGet(virtualTermHash, "nonce")
		seen.released = m.HGet(virtualTermHash, "released") == "1"
	})
	return seen
}

type virtualLease struct {
	holder, token, nonce string
	left                 time.Duration
	released             bool
}

// is reports whether Redis shows the lease of that very term.
func (l virtualLease) is(term Term) bool {
	return l.holder == term.InstanceID && l.token == fmt.Sprint(term.Token) && !l.released
}
