//go:build unix

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/hostclock"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	memberChild  = "fleet-member"
	spinnerChild = "fleet-spinner"
	envSettings  = "TENURE_FLEET_SETTINGS"
)

// Children names what the fleet's child processes are to run; it comes before [redistest.RunChild].
func Children() {
	redistest.ChildMain(memberChild, memberMain)
	redistest.ChildMain(spinnerChild, spinnerMain)
}

// settings are what a member is started with.
type settings struct {
	Namespace  string     `json:"namespace"`
	Name       string     `json:"name"`
	Life       int        `json:"life"`
	Connection connection `json:"connection"`
	Resource   string     `json:"resource"`
	Page       string     `json:"page"`
	Election   election   `json:"election"`
	Version    string     `json:"version,omitempty"`
	Asked      bool       `json:"asked,omitempty"` // it has the tasks of the operator
}

// election is what differs from the defaults in how a fleet elects.
type election struct {
	LeaseTTL       time.Duration `json:"ttl"`
	RenewInterval  time.Duration `json:"renew,omitempty"`
	FailoverMargin time.Duration `json:"margin,omitempty"`
}

func (e election) options() tenure.ElectionOptions {
	return tenure.ElectionOptions{LeaseTTL: e.LeaseTTL, RenewInterval: e.RenewInterval, Safety: tenure.SafetyOptions{FailoverMargin: e.FailoverMargin}}
}

// How a member is set up beside its election: quick enough for a round to see beats, sweeps and
// slots.
const (
	memberShutdown = 3 * time.Second
	memberBeat     = 250 * time.Millisecond
	memberDown     = 4 * time.Second
	rerunEvery     = 700 * time.Millisecond
	onceEvery      = 1100 * time.Millisecond
	runFor         = 100 * time.Millisecond // at most
	drainFor       = 60 * time.Millisecond  // at most
	writeEvery     = 50 * time.Millisecond
	listBound      = 10 * time.Second // for one listing
)

// memberTasks are the intervals of the tasks of a member.
var memberTasks = map[string]time.Duration{"rerun": rerunEvery, "once": onceEvery}

// member is a process of the fleet: it embeds tenure as a service would, and says what it sees on
// standard output.
type member struct {
	settings
	coordinator *tenure.Coordinator
	page        *page
	writer      *writer
	stalls      stalls
	ctx         context.Context //nolint:containedctx // of the process
	late        sync.WaitGroup  // writes that come after the end of a term

	looking   sync.Mutex
	concluded bool // the last term was reported

	mu  sync.Mutex
	out *json.Encoder
}

// memberMain runs until SIGTERM. SIGUSR1 has it resign, SIGHUP hand over to the best candidate,
// SIGWINCH drain for a time, SIGUSR2 say what it sees.
func memberMain() {
	if err := runMember(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // the main function of a process
	}
}

func runMember() error {
	m := &member{out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(os.Getenv(envSettings)), &m.settings); err != nil {
		return err
	}
	var err error
	if m.page, err = openPage(m.Page); err != nil {
		return err
	}
	if m.writer, err = dialResource(m.Resource, process{m.Name, m.Life}); err != nil {
		return err
	}
	client, err := m.Connection.client()
	if err != nil {
		return err
	}
	m.coordinator, err = tenure.New(client, tenure.Options{
		Namespace: m.Namespace, InstanceID: m.Name, Election: m.Election.options(), ShutdownTimeout: memberShutdown,
		Registry: tenure.RegistryOptions{
			Version: m.Version, HeartbeatInterval: memberBeat, HeartbeatTTL: 2 * time.Second, SweepInterval: memberBeat, DriftedAfter: time.Second, DownAfter: memberDown,
		},
	})
	if err != nil {
		return err
	}
	err = errors.Join(
		m.coordinator.Tasks().Register(tenure.Task{Name: "rerun", Schedule: tenure.Every(rerunEvery), Run: m.run}),
		m.coordinator.Tasks().Register(tenure.Task{Name: "once", Schedule: tenure.Every(onceEvery), Run: m.run, Abandoned: tenure.AbandonedFail}),
	)
	if m.Asked {
		err = errors.Join(err,
			m.coordinator.Tasks().Register(tenure.Task{Name: taskAsked, Schedule: tenure.OnDemand(), Run: m.run, Abandoned: tenure.AbandonedFail, History: 1000}),
			m.coordinator.Tasks().Register(tenure.Task{Name: taskHeld, Schedule: tenure.Every(rerunEvery), Run: m.run}),
		)
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m.ctx = ctx
	m.coordinator.Observe(m.observe)
	looks := make(chan os.Signal, 1)
	signal.Notify(looks, syscall.SIGUSR2)
	go m.looks(looks) // ends with the process
	go m.resignals()  // likewise
	go m.transfers()  // likewise
	go m.drains()     // likewise
	go m.probe()      // likewise
	unhook := context.AfterFunc(ctx, func() { m.say(Entry{Kind: StopAsked, At: hostclock.Now()}) })
	defer unhook()
	m.say(Entry{Kind: Started, At: hostclock.Now()})
	err = m.coordinator.Run(ctx, m.lead)
	stopped := Entry{Kind: Stopped, At: hostclock.Now(), OK: err == nil}
	if err != nil {
		stopped.Text = err.Error()
	}
	m.conclude()
	m.late.Wait()
	m.say(stopped)
	return client.Close()
}

// resignals resigns at each SIGUSR1.
func (m *member) resignals() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	for range asked {
		ctx, cancel := context.WithTimeout(m.ctx, memberShutdown)
		_ = m.coordinator.Elector().Resign(ctx) // who does not lead has nothing to resign
		cancel()
	}
}

// transfers hands the lead over to the best candidate at each SIGHUP.
func (m *member) transfers() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	for range asked {
		ctx, cancel := context.WithTimeout(m.ctx, memberShutdown)
		_ = m.coordinator.Elector().Transfer(ctx, "") // who does not lead has nothing to hand over
		cancel()
	}
}

// drains drains at each SIGWINCH, and ends the drain a lease after what it leads was handed over.
func (m *member) drains() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGWINCH)
	for range asked {
		ctx, cancel := context.WithTimeout(m.ctx, memberShutdown)
		_ = m.coordinator.Drain(ctx) // what is still draining then goes on
		cancel()
		select {
		case <-time.After(m.Election.LeaseTTL):
		case <-m.ctx.Done():
		}
		m.coordinator.Undrain()
	}
}

// looks says at each signal whether the subscription hears, and who is listed as active.
func (m *member) looks(asked <-chan os.Signal) {
	for range asked {
		hearing := m.coordinator.Elector().Status().Subscription
		heard := Entry{Kind: Heard, At: hostclock.Now(), OK: hearing.Active}
		if hearing.Err != nil {
			heard.Text = hearing.Err.Error()
		}
		m.say(heard)
		ctx, cancel := context.WithTimeout(m.ctx, listBound)
		instances, err := m.coordinator.Registry().Instances(ctx, tenure.InstanceQuery{States: []tenure.InstanceState{tenure.InstanceActive}})
		cancel()
		if err != nil {
			m.say(Entry{Kind: Told, At: hostclock.Now(), Text: err.Error()})
			continue
		}
		var ids []string
		for _, i := range instances {
			ids = append(ids, i.ID)
		}
		m.say(Entry{Kind: Listed, At: hostclock.Now(), Text: strings.Join(ids, " ")})
	}
}

// say writes one entry.
func (m *member) say(e Entry) {
	e.Who, e.Life = m.Name, m.Life
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.out.Encode(e); err != nil {
		panic(err) // nobody listens any more
	}
}

func (m *member) observe(e tenure.Event) {
	switch e.Type {
	case tenure.EventLeaseReleased:
		m.say(Entry{Kind: Released, At: hostclock.Of(e.Time), Token: e.Token})
	case tenure.EventInstanceDown:
		m.say(Entry{Kind: Removed, At: hostclock.Of(e.Time), Text: e.Subject})
	case tenure.EventElectionMisconfigured, tenure.EventWorkOverrun, tenure.EventWorkFailed, tenure.EventCallsStuck, tenure.EventInstanceDuplicated,
		tenure.EventRedisClockStepped:
		m.say(Entry{Kind: Told, At: hostclock.Of(e.Time), Token: e.Token, Text: fmt.Sprintf("%s %s %v", e.Type, e.Subject, e.Err)})
	}
}

// lead is the work of a leader: it writes to the fenced resource until its context is done, and
// takes a moment to stop. Later it writes once more, as one would that does not look.
func (m *member) lead(ctx context.Context, term tenure.Term) error {
	m.say(Entry{Kind: WorkBegan, At: hostclock.Now(), Token: term.Token})
	pause := time.NewTicker(writeEvery)
	defer pause.Stop()
	done := make(chan time.Duration, 1) // when the context was: a write may hang in the resource then
	defer context.AfterFunc(ctx, func() { done <- hostclock.Now() })()
	for ctx.Err() == nil {
		if err := m.writer.write(term.Token); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
	cancelled := <-done
	deadline := time.Duration(m.page.deadline.Load())
	wait(context.Background(), 5*time.Millisecond+rand.N(drainFor))
	m.say(Entry{
		Kind: WorkEnded, At: hostclock.Now(), Token: term.Token, Cancelled: cancelled, Deadline: deadline, Stall: m.stalls.longest(),
		Text: endOf(context.Cause(ctx)),
	})
	m.late.Go(func() { // ends by itself, at the latest with the process
		wait(m.ctx, rand.N(2*m.Election.LeaseTTL))
		_ = m.writer.write(term.Token) // what comes of it stands in the log of the resource
	})
	return nil
}

// endOf is the cause of the end of a term, in a word.
func endOf(cause error) string {
	for _, known := range []struct {
		is   error
		word string
	}{{tenure.ErrStopped, endStopped}, {tenure.ErrResigned, endResigned}, {tenure.ErrLost, endLost}, {tenure.ErrWorkFailed, "failed"}} {
		if errors.Is(cause, known.is) {
			return known.word
		}
	}
	return fmt.Sprint(cause)
}

// run is the work of a task.
func (m *member) run(ctx context.Context, run tenure.TaskRun) error {
	e := Entry{
		Kind: RunBegan, At: hostclock.Now(), Token: run.Token, Task: run.Task, Run: run.ID, Slot: run.Slot.UnixMilli(), Attempt: run.Attempt,
	}
	if len(run.Args) > 0 {
		e.Number = run.Args[0]
	}
	m.say(e)
	wait(ctx, rand.N(runFor))
	e.Kind, e.At, e.Stall, e.OK = RunEnded, hostclock.Now(), m.stalls.longest(), ctx.Err() == nil
	m.say(e)
	return ctx.Err()
}

// wait waits for so long, or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// spinnerMain keeps every processor busy four times over, until it is killed.
func spinnerMain() {
	for range 4 * runtime.NumCPU() {
		go func() { // ends with the process
			for n := new(atomic.Uint64); ; {
				n.Add(1)
			}
		}()
	}
	select {}
}
