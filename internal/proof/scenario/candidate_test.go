//go:build unix

package scenario

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

// The settings of a candidate process.
const (
	envName  = "TENURE_REALTEST_NAME"
	envAddr  = "TENURE_REALTEST_ADDR"
	envTTL   = "TENURE_REALTEST_TTL"
	envVigil = "TENURE_REALTEST_VIGIL" // "1": a leader spins to be awake first

	envTask     = "TENURE_REALTEST_TASK"     // "1": a task runs when a term begins
	envShutdown = "TENURE_REALTEST_SHUTDOWN" // of Options.ShutdownTimeout; "": shutdownTimeout
)

const (
	taskName        = "report"
	finishKey       = "finish" // the task returns once this key is there
	shutdownTimeout = 5 * time.Second
)

const fenceKey = "resource"

// fence is the resource that leaders write to: it refuses a token below the highest that it has
// seen.
var fence = redis.NewScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or '0') then return 'refused' end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
redis.call('RPUSH', KEYS[1] .. ':accepted', ARGV[1])
return 'accepted'`)

// candidateMain is a candidate in a process of its own, with a registry and all. It runs until
// SIGTERM, says what happens on standard output, and starves itself of processors from SIGUSR1 on.
//
//	ready                                Run was called
//	leads <token> <before> <after>       asked between these times, it believed to lead
//	wrote <token> accepted|refused       what the resource said to a new leader
//	watches <token>                      a leader looks out for not having run
//	woke <token> <gap> true|false        the first IsLeader after not having run for longer than a lease
//	late write <token> accepted|refused  what the resource said after that
//	cancelled <token> <at> <deadline>    the context of the term ended
//	runs <token>                         the task began
//	ran <token> <at> leads=<bool> holder=<who> <error>  the task is about to return; who holds the lease
//	starved                              the processors are busy
//	ended <error>                        Run returned
func candidateMain() {
	out := &speaker{}
	ttl, err := time.ParseDuration(os.Getenv(envTTL))
	out.must(err)
	shutdown, err := time.ParseDuration(cmp.Or(os.Getenv(envShutdown), shutdownTimeout.String()))
	out.must(err)
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(envAddr)})
	coordinator, err := tenure.New(client, tenure.Options{
		Namespace: namespace, InstanceID: os.Getenv(envName), ShutdownTimeout: shutdown,
		Election: tenure.ElectionOptions{LeaseTTL: ttl, Safety: tenure.SafetyOptions{RestartGuard: -1, EmptyHistoryWait: -1}},
	})
	out.must(err)
	c := &candidate{Elector: coordinator.Elector(), out: out, client: client, ttl: ttl, vigil: os.Getenv(envVigil) == "1"}
	if os.Getenv(envTask) == "1" {
		out.must(coordinator.Tasks().Register(c.task()))
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	starve := make(chan os.Signal, 1)
	signal.Notify(starve, syscall.SIGUSR1)
	go func() { // ends with the process
		<-starve
		for range 4 * runtime.GOMAXPROCS(0) {
			go spin()
		}
		out.say("starved")
	}()
	go c.probe() // ends with the process
	out.say("ready")
	out.say("ended %v", coordinator.Run(ctx, c.lead))
}

// candidate is what a candidate process consists of.
type candidate struct {
	*tenure.Elector
	out      *speaker
	client   *redis.Client
	ttl      time.Duration
	vigil    bool
	deadline atomic.Int64 // the last that was seen, by the host's monotonic clock
}

// speaker writes whole lines to standard output. It is safe for concurrent use.
type speaker struct{ mu sync.Mutex }

func (s *speaker) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

func (s *speaker) must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// spin keeps a processor busy for as long as the process lives.
func spin() {
	for n := uint64(0); ; n++ {
		idle.Store(n)
	}
}

var idle atomic.Uint64

// probe asks every millisecond what the elector believes, for as long as the process lives.
func (c *candidate) probe() {
	for range time.Tick(time.Millisecond) {
		before := monotonic()
		if term, leads := c.Term(); leads && c.IsLeader() {
			c.out.say("leads %d %d %d", term.Token, before, monotonic())
		}
		if status := c.Status(); status.State == tenure.ElectionLeading {
			c.deadline.Store(int64(monotonic() + time.Until(status.Deadline)))
		}
	}
}

// lead is the work of a leader: it writes to the fenced resource and waits for the end.
func (c *candidate) lead(ctx context.Context, term tenure.Term) error {
	c.out.say("wrote %d %s", term.Token, c.write(term))
	if c.vigil {
		go c.watch(term) // ends when it has been asleep, or with the process
	}
	<-ctx.Done()
	c.out.say("cancelled %d %d %d", term.Token, monotonic(), c.deadline.Load())
	return nil
}

// task runs once when a term begins, until it may return or its context is done: a bounded poll.
func (c *candidate) task() tenure.Task {
	return tenure.Task{Name: taskName, Schedule: tenure.Every(24 * time.Hour), RunOnElection: true, Run: func(ctx context.Context, run tenure.TaskRun) error {
		c.out.say("runs %d", run.Token)
		for there := int64(0); there == 0 && ctx.Err() == nil; time.Sleep(look) {
			there, _ = c.client.Exists(ctx, finishKey).Result() // without an answer it asks again
		}
		holder, err := c.client.Get(context.Background(), leaderKey).Result()
		if err != nil {
			holder = err.Error()
		}
		c.out.say("ran %d %d leads=%v holder=%s %v", run.Token, monotonic(), c.IsLeader(), holder, ctx.Err())
		return ctx.Err()
	}}
}

func (c *candidate) write(term tenure.Term) string {
	reply, err := fence.Run(context.Background(), c.client, []string{fenceKey}, term.Token).Text()
	if err != nil {
		return err.Error()
	}
	return reply
}

// watch asks IsLeader without a pause, so that it is the first to do so when the process wakes up,
// and then writes as a leader would that does not ask.
func (c *candidate) watch(term tenure.Term) {
	frozen := false // it was in the middle of a call, whose answer may be of before
	last := monotonic()
	c.out.say("watches %d", term.Token)
	for {
		before := monotonic()
		leads := c.IsLeader()
		after := monotonic()
		if before-last > c.ttl || frozen {
			c.out.say("woke %d %v %v", term.Token, round(before-last), leads)
			c.out.say("late write %d %s", term.Token, c.write(term))
			return
		}
		frozen = after-before > c.ttl
		last = after
		if frozen {
			last = before // the gap is reported with the next look
		}
	}
}
