//go:build unix

package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/hostclock"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// The tasks of the operator.
const (
	taskAsked = "asked" // is only triggered; a run that is left behind has failed
	taskHeld  = "held"  // is paused, and resumed
)

// How long the operator waits.
const (
	askTimeout = 2 * time.Second  // for an instance to take a command
	askBound   = 15 * time.Second // for the answer to one call
	noteBound  = 2 * time.Second  // what a call may take beyond that
	runsAgain  = 2 * time.Minute  // for a task that was resumed: its leader looks once a minute
	askedLimit = 1000
)

// openAsked starts a server that keeps what the operator asks for, whatever happens to the members
// and the network.
func openAsked(t redistest.TB, _ int) servers {
	w := newSingle(t, true)
	w.deck = append(append([]fault{}, processFaults...), networkFaults...)
	return w
}

// operator asks a fleet for things while faults go on, as a command line does: by a Control, from
// outside, over a network that nothing disturbs.
type operator struct {
	c        *cluster
	rng      *rand.Rand
	control  *tenure.Control
	triggers int

	mu sync.Mutex // held while something is asked, and in a calm
}

func newOperator(c *cluster, seed uint64) *operator {
	connection := c.servers.connection(newLink(c.t, c.servers.addresses()))
	client, err := connection.client()
	if err != nil {
		c.t.Fatalf("fleet: %v", err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: c.servers.namespace(), By: "operator", Timeout: askTimeout})
	if err != nil {
		c.t.Fatalf("fleet: %v", err)
	}
	return &operator{c: c, rng: rand.New(rand.NewPCG(seed, 1)), control: control}
}

// play asks for one thing after the other until over is closed. Each leaves nothing behind that
// lasts.
func (o *operator) play(over <-chan struct{}) {
	wishes := []func(){o.trigger, o.trigger, o.trigger, o.hold, o.hold, o.cancel, o.drain, o.transfer, o.resign}
	for {
		pause := time.NewTimer(time.Duration(o.rng.Int64N(int64(o.c.election.LeaseTTL / 2))))
		select {
		case <-over:
			pause.Stop()
			return
		case <-pause.C:
		}
		o.mu.Lock()
		wishes[o.rng.IntN(len(wishes))]()
		o.mu.Unlock()
	}
}

// ask makes one call, and keeps what it was answered.
func (o *operator) ask(what, task, number string, do func(context.Context, *tenure.Control) (string, error)) error {
	e := Entry{Kind: Asked, At: hostclock.Now(), Who: "operator", Text: what, Task: task, Number: number}
	control, err := o.control.As("", func(id string) { e.ID = id })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askBound)
	defer cancel()
	e.Run, err = do(ctx, control)
	e.Until, e.Wall, e.OK = hostclock.Now(), time.Duration(time.Now().UnixNano()), err == nil
	if err != nil {
		e.Err = err.Error()
	}
	o.c.journal.add(e)
	return err
}

// simply is a call that returns nothing else.
func simply(do func(context.Context, *tenure.Control) error) func(context.Context, *tenure.Control) (string, error) {
	return func(ctx context.Context, control *tenure.Control) (string, error) { return "", do(ctx, control) }
}

func (o *operator) trigger() {
	o.triggers++
	number := fmt.Sprint(o.triggers)
	_ = o.ask("trigger", taskAsked, number, func(ctx context.Context, control *tenure.Control) (string, error) {
		return control.Trigger(ctx, taskAsked, number)
	})
}

// hold pauses a task for some of its slots.
func (o *operator) hold() {
	_ = o.ask("pause", taskHeld, "", simply(func(ctx context.Context, control *tenure.Control) error {
		return control.Pause(ctx, taskHeld, "because")
	}))
	o.c.wait(time.Duration(o.rng.Int64N(int64(3 * rerunEvery))))
	o.resume()
}

// resume ends a pause: it asks until that is so.
func (o *operator) resume() {
	for range 20 {
		err := o.ask("resume", taskHeld, "", simply(func(ctx context.Context, control *tenure.Control) error { return control.Resume(ctx, taskHeld) }))
		if err == nil || errors.Is(err, tenure.ErrNotFound) {
			return
		}
	}
}

func (o *operator) cancel() {
	_ = o.ask("cancel", taskAsked, "", simply(func(ctx context.Context, control *tenure.Control) error { return control.Cancel(ctx, taskAsked) }))
}

// drain has a member drain for a time.
func (o *operator) drain() {
	id := fmt.Sprintf("member-%d", o.rng.IntN(fleetSize))
	_ = o.ask("drain", "", id, simply(func(ctx context.Context, control *tenure.Control) error { return control.Drain(ctx, id) }))
	o.c.wait(time.Duration(o.rng.Int64N(int64(o.c.election.LeaseTTL))))
	for range 20 {
		err := o.ask("undrain", "", id, simply(func(ctx context.Context, control *tenure.Control) error { return control.Undrain(ctx, id) }))
		if err == nil || errors.Is(err, tenure.ErrNotFound) { // a process that was started anew does not drain
			return
		}
	}
}

func (o *operator) transfer() {
	id := ""
	if o.rng.IntN(2) == 0 {
		id = fmt.Sprintf("member-%d", o.rng.IntN(fleetSize))
	}
	_ = o.ask("transfer", "", id, simply(func(ctx context.Context, control *tenure.Control) error { return control.Transfer(ctx, "", id) }))
}

func (o *operator) resign() {
	_ = o.ask("resign", "", "", simply(func(ctx context.Context, control *tenure.Control) error { return control.Resign(ctx, "") }))
}

// settle waits, at the end of a calm, until the task that was resumed last runs again, and takes
// down what Redis has of runs and commands. mu is held.
func (o *operator) settle() {
	since := hostclock.Now()
	o.resume()
	for hostclock.Now()-since < runsAgain && !o.c.journal.ran(taskHeld, since) {
		o.c.wait(look)
	}
	ctx, cancel := bounded()
	defer cancel()
	runs, err := o.control.Tasks().Runs(ctx, taskAsked, askedLimit)
	if err != nil {
		o.c.t.Errorf("fleet: %v", err)
	}
	for _, r := range runs {
		o.c.journal.add(Entry{Kind: Record, At: hostclock.Now(), Task: r.Task, Run: r.Trigger, Text: string(r.State)})
	}
	commands, err := o.control.Commands(ctx, askedLimit)
	if err != nil {
		o.c.t.Errorf("fleet: %v", err)
	}
	for _, r := range commands {
		o.c.journal.add(Entry{Kind: Audit, At: hostclock.Now(), Run: r.ID, Who: r.InstanceID, Text: r.State, OK: !r.Ended.IsZero()})
	}
}
