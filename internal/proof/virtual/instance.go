package virtual

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/hook"
)

// instance is a machine, in the testing/synctest bubble of its world, on which a process
// lives, again and again.
type instance struct {
	*cluster
	number int
	name   string
	life   atomic.Pointer[life] // nil: no process runs
	lives  int
}

// life is one process.
type life struct {
	*instance
	number      int        // of the lives of its instance
	rand        *rand.Rand // of its leader work
	client      *redis.Client
	elector     *tenure.Elector
	coordinator *tenure.Coordinator // nil if electors stand alone, as registry
	registry    *tenure.Registry
	more        []*tenure.Elector // see setup.roles
	cancel      context.CancelFunc
	stopped     atomic.Int64  // when a stop was asked for; 0: it was not
	dead        atomic.Bool   // crashed: what it believes counts no more
	done        chan struct{} // closed when Run has returned

	// guarded by the mutex of the checker
	leading  int64       // token of the term that is on by the events; 0: none
	past     tenure.Term // the last one whose work was cancelled
	working  int         // callbacks that have begun and not ended
	begun    int64       // token of the last callback that began
	undrains int         // drains that were ended
	drained  bool        // a drain was waited for, and is on
}

// boot starts a process, if none runs.
func (i *instance) boot() {
	if i.life.Load() != nil {
		return
	}
	i.lives++
	i.note(i.name, "boot", "", int64(i.lives))
	ctx, cancel := context.WithCancel(context.Background())
	life := &life{
		instance: i, number: i.lives, rand: newRand(i.seed, i.name+" work", i.lives), cancel: cancel, done: make(chan struct{}),
	}
	random, secret := draws(i.seed, i.name, i.lives)
	options := hook.Repeatable(tenure.Options{
		Namespace:       namespace,
		InstanceID:      i.name,
		Election:        tenure.ElectionOptions{LeaseTTL: i.pace.ttl},
		ShutdownTimeout: i.pace.shutdown,
		Registry:        i.pace.registry,
	}, random, secret).(tenure.Options)
	if i.setup.options != nil {
		i.setup.options(i.number, &options)
	}
	client := i.net.Client(i.name, func(o *redis.Options) {
		o.ReadTimeout = 2 * time.Second
		if i.setup.client != nil {
			i.setup.client(o)
		}
	})
	life.client = client
	run := life.build(options, random, secret)
	i.check.join(life)
	i.life.Store(life)
	i.running.Go(func() { // ends after cancel
		defer close(life.done)
		time.Sleep(i.net.Stagger(i.name))
		life.ended(run(ctx, life.lead))
		_ = client.Close()
	})
}

// build makes the process, and returns its Run.
func (l *life) build(options tenure.Options, random func() float64, secret func() string) func(context.Context, ...tenure.LeadFunc) error {
	if !l.setup.tasks {
		alone := hook.Repeatable(tenure.ElectorOptions{
			Namespace: options.Namespace, InstanceID: options.InstanceID, Election: options.Election, ShutdownTimeout: options.ShutdownTimeout,
		}, random, secret).(tenure.ElectorOptions)
		elector, err := tenure.NewElector(l.client, alone)
		if err != nil {
			l.Fatal(err)
		}
		l.elector = elector
		elector.Observe(l.observe)
		return elector.Run
	}
	coordinator, err := tenure.New(l.client, options)
	if err != nil {
		l.Fatal(err)
	}
	for _, t := range l.pace.tasks {
		if err := coordinator.Tasks().Register(l.task(t)); err != nil {
			l.Fatal(err)
		}
	}
	for n := range l.setup.roles {
		role := options.Election
		role.Spread = l.setup.spread
		e, err := coordinator.AddRole(fmt.Sprint("role-", n), role)
		if err != nil {
			l.Fatal(err)
		}
		l.more = append(l.more, e)
	}
	l.coordinator, l.registry = coordinator, coordinator.Registry()
	l.elector = coordinator.Elector()
	coordinator.Observe(l.observe)
	return coordinator.Run
}

// draws are the jitter and the nonces of a process, the same for a seed. They may be drawn
// from any goroutine.
func draws(seed uint64, name string, life int) (random func() float64, secret func() string) {
	var mu sync.Mutex
	jitter, nonces := newRand(seed, name+" jitter", life), newRand(seed, name+" nonce", life)
	random = func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return jitter.Float64()
	}
	secret = func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%016x%016x", nonces.Uint64(), nonces.Uint64())
	}
	return random, secret
}

// ended judges how Run returned.
func (l *life) ended(err error) {
	since := time.Duration(time.Now().UnixNano() - l.stopped.Load())
	if l.dead.Load() {
		return
	}
	l.note(l.name, "stopped", fmt.Sprint(err), 0)
	switch {
	case l.stopped.Load() == 0:
		l.check.fail("P11: Run of %s returned by itself: %v", l.name, err)
	case since > l.pace.shutdown:
		l.check.fail("P11: Run of %s returned %v after the stop", l.name, since)
	case err != nil && !errors.Is(err, tenure.ErrDrainTimeout):
		l.check.fail("P11: Run of %s returned %v", l.name, err)
	case err == nil && l.check.works(l) > 0:
		l.check.fail("P11: Run of %s returned nil and leader work still runs", l.name)
	}
}

// stop asks the process to end and waits for it.
func (i *instance) stop() {
	life := i.life.Swap(nil)
	if life == nil {
		return
	}
	i.note(i.name, "stop", "", 0)
	life.stopped.Store(time.Now().UnixNano())
	life.cancel()
	<-life.done
	i.check.leave(life)
}

// crash kills the process: nothing of it gets out any more, and it forgets.
func (i *instance) crash() {
	life := i.life.Swap(nil)
	if life == nil {
		return
	}
	i.check.crashed(life, life.elector.IsLeader())
	life.dead.Store(true)
	i.net.Crash(i.name)
	life.cancel()
}

// resign gives the term up, if there is one, in a goroutine of its own.
func (i *instance) resign() {
	life := i.life.Load()
	if life == nil || !life.elector.IsLeader() {
		return
	}
	i.note(i.name, "resign", "", 0)
	i.running.Go(func() { // ends with the hand-over, or after its bound
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = life.elector.Resign(ctx)
	})
}

// lead is leader work: it writes its token to the fenced resource now and then, and takes its time
// to return.
func (l *life) lead(ctx context.Context, term tenure.Term) error {
	l.check.workBegins(l, term)
	defer l.check.workEnds(l, term)
	pulse := time.NewTicker(l.pace.write)
	defer pulse.Stop()
	for {
		select {
		case <-pulse.C:
			if ctx.Err() == nil { // if both are ready the choice must not count
				l.check.write(l, term)
			}
			continue
		case <-ctx.Done():
		}
		l.check.cancelled(l, term, context.Cause(ctx))
		if l.setup.drain > 0 {
			time.Sleep(time.Duration(l.rand.Int64N(int64(l.setup.drain))))
			l.check.write(l, term) // a last word, which a newer leader's token fences off
		}
		return nil
	}
}
