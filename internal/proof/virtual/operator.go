package virtual

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
)

// operator asks for things from a host of its own, by a Control, and has processes ask for
// themselves: transfers, drains, triggers and the like, while faults go on. Every call is made in a
// goroutine of its own and ends within patience. All is virtual time.
type operator struct {
	*cluster
	client   *redis.Client
	control  *tenure.Control
	triggers int // that were asked for
}

const operatorName = "operator"

// newOperator makes the operator of a world. Its client ends with the network.
func newOperator(c *cluster) *operator {
	client := c.net.Client(operatorName, func(o *redis.Options) { o.ReadTimeout = 2 * time.Second })
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: namespace, By: operatorName, Timeout: c.pace.ttl})
	if err != nil {
		c.Fatal(err)
	}
	return &operator{cluster: c, client: client, control: control}
}

// patience is for how long a call is waited for: longer than a command waits for its instance, and
// a transfer for its heir.
func (o *operator) patience() time.Duration { return 3 * max(o.pace.ttl, o.pace.shutdown) }

// noteBound is for how much longer than its context a call of a Control may take: it notes what it
// has done.
const noteBound = 2 * time.Second

// ask makes a call, and keeps what it was answered.
func (o *operator) ask(kind, about string, do func(context.Context, *tenure.Control) error) error {
	o.note(operatorName, "asks "+kind, about, 0)
	var id string
	control, err := o.control.As("", func(named string) { id = named })
	if err != nil {
		o.Fatal(err)
	}
	began := o.net.Elapsed()
	ctx, cancel := context.WithTimeout(context.Background(), o.patience())
	defer cancel()
	err = do(ctx, control)
	o.check.answered(kind, about, id, err, o.net.Elapsed()-began)
	return err
}

// instantly makes a call in a goroutine of its own.
func (o *operator) instantly(kind, about string, do func(context.Context, *tenure.Control) error) {
	o.running.Go(func() { _ = o.ask(kind, about, do) }) // ends within patience
}

// answers are the words for what came of a call, the special ones first.
var answers = []struct {
	err  error
	word string
}{
	{tenure.ErrNotReady, "not ready"},
	{tenure.ErrNotTaken, "not taken"},
	{tenure.ErrTransferring, "transferring"},
	{tenure.ErrTriggerWaiting, "another waits"},
	{tenure.ErrNotLeader, "no leader"},
	{tenure.ErrNoLeader, "no leader"},
	{tenure.ErrNotFound, "not found"},
	{tenure.ErrDrainTimeout, "drain timeout"},
	{tenure.ErrStopped, "stopped"},
	{tenure.ErrCommandFailed, "failed"},
	{context.DeadlineExceeded, "not known"},
	{tenure.ErrUnreachable, "not known"},
}

func answerOf(err error) string {
	if err == nil {
		return "done"
	}
	for _, known := range answers {
		if errors.Is(err, known.err) {
			return known.word
		}
	}
	return err.Error()
}

// another draws an instance other than that one, which is down or is not; nil: there is none.
func (s *strike) another(than *instance, down bool) *instance {
	first := s.rand.IntN(len(s.instances))
	for i := range s.instances {
		one := s.instances[(first+i)%len(s.instances)]
		if one != than && (one.life.Load() == nil) == down {
			return one
		}
	}
	return nil
}

// transfer has the leader hand over, by itself or because the operator asks it to. heir "": to the
// best candidate.
func (s *strike) transfer(leader *instance, heir string) {
	if s.rand.IntN(2) == 0 {
		s.operator.instantly("transfer", heir, func(ctx context.Context, control *tenure.Control) error {
			return control.Transfer(ctx, "", heir)
		})
		return
	}
	life := leader.life.Load()
	s.operator.instantly("own transfer", heir, func(ctx context.Context, _ *tenure.Control) error {
		return life.elector.Transfer(ctx, heir)
	})
}

// asks are the strikes of profiles with an operator, by name.
var asks = map[string]func(s *strike){
	"transfer": func(s *strike) {
		if leader := s.leader(); leader != nil {
			if heir := s.another(leader, false); heir != nil {
				s.transfer(leader, heir.name)
			}
		}
	},
	"transfer-best": func(s *strike) {
		if leader := s.leader(); leader != nil {
			s.transfer(leader, "")
		}
	},
	"transfer-down": func(s *strike) { // the heir dies a moment before, or while it is waited for
		leader := s.leader()
		if leader == nil {
			return
		}
		heir := s.another(leader, true)
		if heir == nil {
			if heir = s.another(leader, false); heir == nil {
				return
			}
			s.plan(s.span(odd, 100*time.Millisecond), heir.crash)
			s.plan(s.span(time.Second, 8*time.Second), heir.boot)
		}
		s.transfer(leader, heir.name)
	},
	"ask-resign": func(s *strike) {
		s.operator.instantly("resign", "", func(ctx context.Context, control *tenure.Control) error { return control.Resign(ctx, "") })
	},
	"drain": func(s *strike) {
		life := s.victim.life.Load()
		if life == nil {
			return
		}
		again := s.span(100*time.Millisecond, 12*time.Second)
		if s.rand.IntN(2) == 0 {
			s.operator.drain(life, "own drain", func(ctx context.Context, _ *tenure.Control) error { return life.coordinator.Drain(ctx) })
			s.plan(again, life.coordinator.Undrain)
			return
		}
		s.operator.drain(life, "drain", func(ctx context.Context, control *tenure.Control) error { return control.Drain(ctx, life.name) })
		s.plan(again, func() {
			s.operator.instantly("undrain", life.name, func(ctx context.Context, control *tenure.Control) error {
				return control.Undrain(ctx, life.name)
			})
		})
	},
	"pause-task": func(s *strike) {
		task := s.oneTask()
		s.running.Go(func() { _ = s.operator.pause(task) }) // ends within patience
		s.plan(s.span(100*time.Millisecond, 40*time.Second), func() {
			s.running.Go(func() { _ = s.operator.resume(task) }) // ends within patience
		})
	},
	"trigger": func(s *strike) {
		task, number := s.oneTask(), s.operator.nextTrigger()
		s.running.Go(func() { _ = s.operator.trigger(task, number) }) // ends within patience
	},
	"cancel": func(s *strike) {
		task := s.oneTask()
		s.operator.instantly("cancel", task, func(ctx context.Context, control *tenure.Control) error { return control.Cancel(ctx, task) })
	},
}

func init() { maps.Copy(faults, asks) }

// oneTask draws a task.
func (s *strike) oneTask() string { return s.pace.tasks[s.rand.IntN(len(s.pace.tasks))].name }

// drain has a process drain, in a goroutine of its own.
func (o *operator) drain(life *life, kind string, do func(context.Context, *tenure.Control) error) {
	before := o.check.undrained(life)
	o.running.Go(func() { // ends within patience
		if o.ask(kind, life.name, do) == nil {
			o.check.drained(life, before)
		}
	})
}

func (o *operator) nextTrigger() int {
	o.triggers++
	return o.triggers
}

// trigger triggers a task, with the number of the trigger among its arguments.
func (o *operator) trigger(task string, number int) error {
	o.check.triggers(number, task)
	var id string
	err := o.ask("trigger", task, func(ctx context.Context, control *tenure.Control) (err error) {
		id, err = control.Trigger(ctx, task, triggerArgs(number)...)
		return err
	})
	if err == nil {
		o.check.triggered(number, id)
	}
	return err
}

func triggerArgs(number int) []string { return []string{"by hand", fmt.Sprint(number)} }

func (o *operator) pause(task string) error {
	begun, answered := o.check.resumes(task)
	err := o.ask("pause", task, func(ctx context.Context, control *tenure.Control) error { return control.Pause(ctx, task, "because") })
	if err == nil && begun == answered {
		o.check.paused(task, begun)
	}
	return err
}

func (o *operator) resume(task string) error {
	o.check.resumeBegins(task)
	defer o.check.resumeEnds(task)
	return o.ask("resume", task, func(ctx context.Context, control *tenure.Control) error { return control.Resume(ctx, task) })
}

// letGo ends every drain and every pause, on a network that works.
func (o *operator) letGo() {
	for _, instance := range o.instances {
		if life := instance.life.Load(); life != nil {
			life.coordinator.Undrain()
		}
	}
	for _, t := range o.pace.tasks {
		for range 5 {
			if err := o.resume(t.name); err == nil || errors.Is(err, tenure.ErrNotFound) {
				break
			}
		}
	}
}
