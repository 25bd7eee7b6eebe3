package tenure

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// ControlOptions are the options of NewControl.
type ControlOptions struct {
	// Namespace is that of the instances. Required.
	Namespace string
	// By says who asks: a person or a program. It is shown in the log of the instance and in
	// Commands. At most 128 printable ASCII characters. Default "control".
	By string
	// Timeout is the time within which an instance must take a command, between 1 s and 1 h.
	// Default 30 s. What an instance has taken is waited for as long as the context of the call
	// allows.
	Timeout time.Duration
	// LeaderKeys are the keys of roles that have an ElectionOptions.LeaderKey, by role.
	LeaderKeys map[string]string
	// DriftedAfter and DownAfter are those of the RegistryOptions of the instances: after such a
	// silence Registry shows one as drifted, or down. Between 200 ms and 30 days, DownAfter above
	// DriftedAfter. Default 60 s and 300 s.
	DriftedAfter, DownAfter time.Duration
}

// Control asks instances to do something, from a process that need not be one of them: a command
// line, a page, a job of a deployment. The coordinator of the instance executes each command at
// most once, and only in the state that it is meant for: a command to resign is meant for one term,
// a command to drain for one start of a process. Commands do not wait for each other: Undrain ends
// a drain that is on. Commands are listed with who asked and what became of them, see Commands.
//
// A command reaches its instance by a hint, which is repeated each second, and with the answer to
// its next heartbeat, if it hears no hints (ElectionStatus.Subscription). If the instance does not
// take it within ControlOptions.Timeout, because it is gone or hangs, the call returns ErrNotTaken,
// and the command is not executed any more. If the context of the call ends first, the call returns
// the cause, and the command may still be executed, but not if it reaches Redis only 30 s later.
// Errors of the instance come back as the sentinels of this package. An instance that stops takes
// commands for as long as work of its terms drains: Drain and Undrain then return ErrStopped,
// Resign and Transfer ErrNotLeader. Every call may return ErrUnreachable and ErrMisconfigured too.
//
// What needs no instance (Remove, Pause, Resume, Trigger, Cancel, Forget, ForgetRole) is done at
// once. If the context of such a call ends before the answer, the call notes that in the list,
// which may take 2 s more.
//
// Sending needs a right of its own in Redis: see ControlRules. Elector.Run without a Coordinator
// takes no commands. The methods are safe for concurrent use.
type Control struct {
	store    store.Commands
	leases   func(role string) store.Lease
	registry *Registry
	tasks    *TaskScheduler
	by       string
	timeout  time.Duration
	asked    *callGate
	role     string                                      // the default one
	address  string                                      // of Redis
	server   func(context.Context) (store.Server, error) // nil: there is none
	note     func(id string)
	leaseKey func(role string) string

	// inside reports whether a command comes from work of this process, and is for this process:
	// then obey executes it, since it would wait for that work. nil: there is no such process.
	inside func(ctx context.Context, command store.Command) bool
	obey   func(ctx context.Context, command store.Command) error
	// takesPart reports whether that process is a candidate of a role.
	takesPart func(role string) bool
}

// The kinds of commands.
const (
	commandResign   = "resign"
	commandTransfer = "transfer"
	commandDrain    = "drain"
	commandUndrain  = "undrain"
	commandRemove   = "remove"
	commandPause    = "pause"
	commandResume   = "resume"
	commandCancel   = "cancel"
	commandForget   = "forget"
	commandTrigger  = "trigger"
)

const (
	noteBound             = 2 * time.Second // for how long a note is waited for, also if the context of the call has ended
	defaultCommandTimeout = 30 * time.Second
	maxCommandTimeout     = time.Hour
	commandLate           = 30 * time.Second // a request to leave a command that is held up for longer has no effect
	commandBound          = 5 * time.Second  // for how long a call for a command is waited for
)

// NewControl returns a Control that takes part in nothing. It refuses bad options, and a client
// that cannot serve, as New does. It does not talk to Redis.
func NewControl(rdb redis.UniversalClient, opts ControlOptions) (*Control, error) {
	var c checker
	opts.By, opts.Timeout = cmp.Or(opts.By, "control"), cmp.Or(opts.Timeout, defaultCommandTimeout)
	c.asker("By", opts.By)
	c.between("Timeout", opts.Timeout, time.Second, maxCommandTimeout)
	whole := Options{Namespace: opts.Namespace, InstanceID: "control"}.complete(&c)
	times := RegistryOptions{DriftedAfter: opts.DriftedAfter, DownAfter: opts.DownAfter, HeartbeatInterval: -1}.complete(&c, "")
	whole.Registry.DriftedAfter, whole.Registry.DownAfter = times.DriftedAfter, times.DownAfter
	backing := newRedisStore(rdb, &c, whole)
	roles := make(map[string]ElectionOptions)
	for role, key := range opts.LeaderKeys {
		roles[role] = ElectionOptions{Role: role, LeaderKey: key}.complete(&c, "LeaderKeys.")
		c.leaderKey("LeaderKeys.", opts.Namespace, key)
		if backing.IsSpread() {
			c.spreadElection("LeaderKeys.", roles[role])
		}
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	bus := newEventBus(whole.InstanceID)
	of := func(role string) store.Role {
		election, known := roles[role]
		if !known {
			election = whole.Election
			election.Role = role
		}
		return election.role(whole.Namespace, whole.InstanceID)
	}
	control := &Control{
		store:     backing,
		leases:    func(role string) store.Lease { return backing.ForRole(of(role)) },
		leaseKey:  func(role string) string { return of(role).Key },
		takesPart: func(string) bool { return false },
		tasks:     newTaskScheduler(whole.taskConfig(backing, bus)),
		by:        opts.By, timeout: opts.Timeout, asked: &callGate{most: maxQuestions}, address: backing.Address(), server: backing.Server,
	}
	control.tasks.readOnly = true
	control.registry = newRegistry(backing, bus, whole, elections{ // it leads nothing, and follows nobody
		leading: func(roles []string) []string { return roles },
		leader:  func(ctx context.Context) (LeaderInfo, error) { return control.Leader(ctx, "") },
	})
	control.registry.readOnly = true
	return control, nil
}

// asker refuses a text that cannot say who asks.
func (c *checker) asker(field, by string) {
	if len(by) > 128 || slices.ContainsFunc([]byte(by), func(b byte) bool { return b < ' ' || b > '~' }) {
		c.refuse(field, by, "must have at most 128 characters, all of them printable ASCII")
	}
}

// As returns a Control that asks in another name: for a server that serves several people. by is as
// ControlOptions.By; "" leaves it as it is. noted, if it is not nil, is called with the ID of each
// command (CommandRecord.ID) in the goroutine that asks: as soon as the command was left for its
// instance, and once it is in the list of Commands if no instance is needed. So a server need not
// wait for the end of a command to say which one it is. As returns an *OptionError if by is none.
func (c *Control) As(by string, noted func(id string)) (*Control, error) {
	var check checker
	check.asker("By", by)
	if err := check.err(); err != nil {
		return nil, err
	}
	other := *c
	other.by, other.note = cmp.Or(by, c.by), noted
	return &other, nil
}

// named hands out the ID of a command.
func (c *Control) named(id string) {
	if c.note != nil {
		c.note(id)
	}
}

// RedisAddress is that of Coordinator.RedisAddress.
func (c *Control) RedisAddress() string { return c.address }

// RedisServer is what a Redis says of itself. What it does not say has its zero value.
type RedisServer struct {
	Kind    string        `json:"kind"` // redis or valkey
	Version string        `json:"version"`
	Uptime  time.Duration `json:"-"` // in whole seconds
}

// MarshalJSON renders the uptime as uptime_seconds; it is left out if it is not known.
func (s RedisServer) MarshalJSON() ([]byte, error) {
	type server RedisServer // without this method
	return json.Marshal(struct {
		server
		Uptime seconds `json:"uptime_seconds,omitempty"`
	}{server(s), seconds(s.Uptime)})
}

// RedisServer asks Redis what it is, by one INFO. Of a Redis Cluster one server answers. The error
// is ErrUnreachable without an answer, and ErrMisconfigured if the user may not send INFO; a
// Control of a standalone coordinator answers the zero value. It returns as soon as ctx is done.
func (c *Control) RedisServer(ctx context.Context) (RedisServer, error) {
	if c.server == nil {
		return RedisServer{}, nil
	}
	s, err := ask(ctx, c.asked, c.server)
	return RedisServer(s), err
}

// Registry returns the registry of the instances, to be read. Its states are by
// ControlOptions.DriftedAfter and DownAfter.
func (c *Control) Registry() *Registry { return c.registry }

// Tasks returns the tasks that have a record, to be read. None is registered here: Register returns
// ErrMisconfigured, unless a coordinator has made this Control.
func (c *Control) Tasks() *TaskScheduler { return c.tasks }

// Leader asks Redis who leads a role. "" is the default role: that without a name, or that of
// Options.Election.Role if a coordinator has made this Control. It returns ErrNoLeader if nobody
// leads.
func (c *Control) Leader(ctx context.Context, role string) (LeaderInfo, error) {
	leader, _, err := c.leader(ctx, role)
	return leader, err
}

// leader is Leader, and the time of the answer by Redis's clock.
func (c *Control) leader(ctx context.Context, role string) (leader LeaderInfo, now int64, err error) {
	leases, role, err := c.leaseOf(role)
	if err != nil {
		return leader, 0, err
	}
	reply, err := ask(ctx, c.asked, leases.Leader)
	switch {
	case err != nil:
		return leader, 0, err
	case reply.Verdict != lease.Held:
		return leader, 0, ErrNoLeader
	}
	return leaderOf(role, reply), reply.Now, nil
}

// leaseOf is the lease of a role, and its name; "" is the default one.
func (c *Control) leaseOf(role string) (leases store.Lease, name string, err error) {
	if role != "" && !store.IsRole(role) { // the keys of a reserved one are those of the default role, which no fix may have removed
		return nil, "", fmt.Errorf("%w: %.100q is no role", ErrMisconfigured, role)
	}
	role = cmp.Or(role, c.role)
	return c.leases(role), role, nil
}

// leaderOf is who holds a lease.
func leaderOf(role string, reply store.LeaseReply) LeaderInfo {
	return LeaderInfo{Role: role, InstanceID: reply.Holder, Token: reply.Token, Remaining: reply.Wait, Since: store.StartTime(reply.Since)}
}

// Terms returns the terms of a role, "" for the default one, newest first, at most limit of them.
// See Elector.Terms.
func (c *Control) Terms(ctx context.Context, role string, limit int) ([]TermRecord, error) {
	leases, role, err := c.leaseOf(role)
	if err != nil {
		return nil, err
	}
	return readTerms(ctx, c.asked, leases, role, limit)
}

// Resign has the leader of a role resign, see Elector.Resign. It returns ErrNoLeader if nobody
// leads, or another program does, and ErrNotLeader if the term that was on has ended meanwhile.
func (c *Control) Resign(ctx context.Context, role string) error {
	return c.askLeader(ctx, commandResign, role, 0, "")
}

// ResignTerm is Resign for one term, that of token: somebody has seen who leads, and then asks. It
// returns ErrNotLeader if another term is on, and ErrMisconfigured if token is not above 0.
func (c *Control) ResignTerm(ctx context.Context, role string, token int64) error {
	return c.askTerm(ctx, commandResign, role, token, "")
}

// Transfer has the leader of a role hand the lead over to an instance, or to the best candidate if
// instanceID is "": see Elector.Transfer. It returns what that returns, and ErrNoLeader if nobody
// leads, or another program does.
func (c *Control) Transfer(ctx context.Context, role, instanceID string) error {
	return c.askLeader(ctx, commandTransfer, role, 0, instanceID)
}

// TransferTerm is Transfer for one term, as ResignTerm is Resign.
func (c *Control) TransferTerm(ctx context.Context, role string, token int64, instanceID string) error {
	return c.askTerm(ctx, commandTransfer, role, token, instanceID)
}

// askTerm asks the leader of a role for something that is meant for a term that was seen.
func (c *Control) askTerm(ctx context.Context, kind, role string, token int64, heir string) error {
	if token <= 0 {
		return fmt.Errorf("%w: %d is no fencing token", ErrMisconfigured, token)
	}
	return c.askLeader(ctx, kind, role, token, heir)
}

// askLeader asks the leader of a role for something that is meant for the term of a token; 0: for
// that which is on.
func (c *Control) askLeader(ctx context.Context, kind, role string, token int64, heir string) error {
	if heir != "" && !store.IDPattern.MatchString(heir) {
		return fmt.Errorf("%w: %.100q is no instance ID", ErrMisconfigured, heir)
	}
	leader, now, err := c.leader(ctx, role)
	if err != nil {
		return err
	}
	if leader.Token == 0 || !store.IDPattern.MatchString(leader.InstanceID) {
		return fmt.Errorf("%w: another program holds the lease", ErrNoLeader)
	}
	if token != 0 && token != leader.Token {
		return fmt.Errorf("%w: the term of token %d is over, and %s leads with token %d", ErrNotLeader, token, leader.InstanceID, leader.Token)
	}
	return c.ask(ctx, now, store.Command{Instance: leader.InstanceID, Kind: kind, Role: leader.Role, Token: leader.Token, Argument: heir})
}

// Drain has an instance drain, see Coordinator.Drain. It returns when the instance leads nothing
// any more. ErrNotFound: there is no such instance, or it was started anew meanwhile.
// ErrCommandFailed: somebody has called Undrain meanwhile, so that it may lead. A drain ends with
// the process: one that is started anew under the ID may lead.
func (c *Control) Drain(ctx context.Context, instanceID string) error {
	return c.askInstance(ctx, commandDrain, instanceID)
}

// Undrain ends the drain of an instance, see Coordinator.Undrain. ErrNotFound: as with Drain.
func (c *Control) Undrain(ctx context.Context, instanceID string) error {
	return c.askInstance(ctx, commandUndrain, instanceID)
}

// askInstance asks an instance for something that is meant for the process that is there now.
func (c *Control) askInstance(ctx context.Context, kind, id string) error {
	instance, now, err := c.own(ctx, id)
	if err != nil {
		return err
	}
	return c.ask(ctx, now, store.Command{Instance: id, Kind: kind, Process: instance.Incarnation})
}

// own returns an instance that is one of tenure, and the time of the answer by Redis's clock.
func (c *Control) own(ctx context.Context, id string) (instance Instance, now int64, err error) {
	instance, now, err = c.registry.findInstance(ctx, id)
	if err == nil && instance.Incarnation == "" {
		err = fmt.Errorf("%w: instance %s belongs to another program", ErrNotFound, id)
	}
	return instance, now, err
}

// Remove removes the record of an instance from the registry, at once. Use it for one that is gone
// for good. One that lives enters the registry again with its next heartbeat. ErrNotFound: there is
// no such instance, or it was started anew meanwhile.
func (c *Control) Remove(ctx context.Context, instanceID string) error {
	instance, _, err := c.own(ctx, instanceID)
	if err != nil {
		return err
	}
	return c.noted(ctx, store.Command{Kind: commandRemove, Instance: instanceID}, func() error {
		verdict, err := ask(ctx, c.asked, func(ctx context.Context) (string, error) {
			return c.registry.store.Remove(ctx, instanceID, instance.Incarnation)
		})
		if err == nil && verdict != store.RemovedLeft && verdict != store.RemovedAbsent {
			err = fmt.Errorf("%w: instance %s was started anew", ErrNotFound, instanceID)
		}
		return err
	})
}

// Pause pauses a task, see TaskScheduler.Pause. TaskStatus.Pause shows ControlOptions.By and the
// reason.
func (c *Control) Pause(ctx context.Context, task, reason string) error {
	return c.noted(ctx, store.Command{Kind: commandPause, Argument: task}, func() error { return c.tasks.pauseBy(ctx, task, c.by, reason) })
}

// Resume ends a pause, see TaskScheduler.Resume.
func (c *Control) Resume(ctx context.Context, task string) error {
	return c.noted(ctx, store.Command{Kind: commandResume, Argument: task}, func() error { return c.tasks.Resume(ctx, task) })
}

// Trigger has a task run once, see TaskScheduler.Trigger: it returns the ID of the trigger.
func (c *Control) Trigger(ctx context.Context, task string, args ...string) (id string, err error) {
	err = c.noted(ctx, store.Command{Kind: commandTrigger, Argument: task}, func() error {
		id, err = c.tasks.triggerBy(ctx, task, c.by, args)
		return err
	})
	return id, err
}

// Forget removes the record of a task that nobody registers any more, see TaskScheduler.Forget.
func (c *Control) Forget(ctx context.Context, task string) error {
	return c.noted(ctx, store.Command{Kind: commandForget, Argument: task}, func() error { return c.tasks.Forget(ctx, task) })
}

// Cancel ends the run of a task that is on, see TaskScheduler.Cancel.
func (c *Control) Cancel(ctx context.Context, task string) error {
	return c.noted(ctx, store.Command{Kind: commandCancel, Argument: task}, func() error { return c.tasks.Cancel(ctx, task) })
}

// noted does something that needs no instance, and notes in the audit stream what came of it. What
// could not be noted was done all the same. It is noted too if the context of the call ends
// meanwhile, since it may have taken effect.
func (c *Control) noted(ctx context.Context, command store.Command, do func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := do()
	if errors.Is(err, ErrMisconfigured) { // nothing was asked for
		return err
	}
	outcome := outcomeOf(err)
	if err != nil && ctx.Err() != nil {
		outcome.Text = store.CommandText("it may have taken effect: " + outcome.Text)
	}
	command.ID, command.By = newCommandID(), c.by
	bound, cancel := within(context.WithoutCancel(ctx), noteBound)
	defer cancel()
	if _, missing := ask(bound, c.asked, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.store.NoteCommand(ctx, command, outcome)
	}); missing == nil {
		c.named(command.ID)
	}
	return err
}

func newCommandID() string { return rand.Text() }

// The times of one who waits for a command.
const (
	firstCommandLook = 10 * time.Millisecond // after the command was sent; doubled up to
	hintSpacing      = time.Second           // between two looks, each of which repeats the hint
)

// ask sends a command and waits for what becomes of it. now is the time of Redis as the instance
// was looked up.
func (c *Control) ask(ctx context.Context, now int64, command store.Command) error {
	if c.inside != nil && c.inside(ctx, command) {
		return c.noted(ctx, command, func() error { return c.obey(ctx, command) })
	}
	late := min(c.timeout, commandLate)
	command.ID, command.By, command.NotAfter = newCommandID(), c.by, now+late.Milliseconds()
	verdict, err := ask(ctx, c.asked, func(ctx context.Context) (string, error) { return c.store.SendCommand(ctx, command, c.timeout) })
	switch {
	case err != nil:
		return err
	case verdict == store.CommandFull:
		return fmt.Errorf("%w: %d commands wait for instance %s already", ErrNotTaken, store.MaxWaiting, command.Instance)
	case verdict == store.CommandLate:
		return fmt.Errorf("%w: the command for instance %s was held up for more than %v and has no effect", ErrNotTaken, command.Instance, late)
	}
	c.named(command.ID)
	hinted := time.Now()
	for pause := firstCommandLook; ; pause = min(2*pause, hintSpacing) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("tenure: the command may still be executed: %w", context.Cause(ctx))
		}
		hint := time.Since(hinted) >= hintSpacing
		if hint {
			hinted = time.Now()
		}
		o, err := ask(ctx, c.asked, func(ctx context.Context) (store.CommandOutcome, error) {
			return c.store.LookCommand(ctx, command, hint)
		})
		switch {
		case errors.Is(err, ErrMisconfigured):
			return err
		case err != nil: // it is asked again until ctx is done
		case o.State != store.CommandAsked && o.State != store.CommandTaken:
			return c.errorOf(command, o)
		}
	}
}

// errorOf is the error of a command as its instance has said it.
func (c *Control) errorOf(command store.Command, o store.CommandOutcome) error {
	switch o.State {
	case store.CommandDone:
		return nil
	case store.CommandExpired:
		return fmt.Errorf("%w: instance %s has not taken it within %v", ErrNotTaken, command.Instance, c.timeout)
	case "":
		return fmt.Errorf("%w: what became of the command is not known any more", ErrUnreachable)
	}
	kind := ErrCommandFailed
	for _, word := range commandErrors {
		if word.code == o.Code {
			kind = word.err
		}
	}
	return &commandError{kind: kind, instance: command.Instance, text: o.Text}
}

// commandError is an error of another instance.
type commandError struct {
	kind           error
	instance, text string
}

func (e *commandError) Error() string {
	return fmt.Sprintf("%v: instance %s says: %s", e.kind, e.instance, e.text)
}

func (e *commandError) Unwrap() error { return e.kind }

// commandErrors are the words for errors in what became of a command: a part of the contract. The
// first that matches counts.
var commandErrors = []struct {
	code string
	err  error
}{
	{"not_leader", ErrNotLeader},
	{"not_ready", ErrNotReady},
	{"transferring", ErrTransferring},
	{"drain_timeout", ErrDrainTimeout},
	{"stopped", ErrStopped},
	{"not_found", ErrNotFound},
	{"misconfigured", ErrMisconfigured},
	{"unreachable", ErrUnreachable},
}

// outcomeOf is an error as what became of a command.
func outcomeOf(err error) store.CommandOutcome {
	if err == nil {
		return store.CommandOutcome{State: store.CommandDone}
	}
	o := store.CommandOutcome{State: store.CommandFailed, Code: "failed", Text: store.CommandText(plainText(err))}
	for _, word := range slices.Backward(commandErrors) {
		if matches(err, word.err) {
			o.Code = word.code
		}
	}
	return o
}

// CommandRecord is a command that was asked for, as the audit stream has it. Whoever may write to
// the keys of the namespace may have written it.
type CommandRecord struct {
	ID         string    `json:"id"`
	Kind       string    `json:"kind"` // resign, transfer, drain, undrain, remove, pause, resume, trigger, cancel or forget
	Role       string    `json:"role,omitempty"`
	InstanceID string    `json:"instance_id,omitempty"` // that was asked
	Argument   string    `json:"argument,omitempty"`    // the heir of a transfer ("": the best candidate), or the task; "" of a role that is forgotten
	By         string    `json:"by"`                    // who asked
	Asked      time.Time `json:"asked,omitzero"`        // by Redis's clock
	Ended      time.Time `json:"ended,omitzero"`        // likewise; zero: it waits, is executed, or its process died
	State      string    `json:"state"`                 // asked, done, failed or expired
	Error      string    `json:"error,omitempty"`       // of a command that failed, for people
	// Code is a word for that error: not_leader, not_ready, transferring, drain_timeout, stopped,
	// not_found, misconfigured, unreachable or failed. Of a command that was asked of an instance
	// it stands for the sentinel that the call returns.
	Code string `json:"code,omitempty"`
}

// Commands lists the commands that were asked for, newest first, at most limit of them; of 0 or
// less, none. Of all commands of the namespace the last 500 or so are kept. It returns
// ErrUnreachable or ErrMisconfigured if Redis gives no answer.
func (c *Control) Commands(ctx context.Context, limit int) ([]CommandRecord, error) {
	entries, err := ask(ctx, c.asked, c.store.CommandLog)
	if err != nil {
		return nil, err
	}
	var records []CommandRecord
	ended := make(map[string]store.CommandEntry)
	for _, e := range entries {
		if len(records) >= limit {
			break
		}
		switch e.Event {
		case "ended":
			ended[e.ID] = e
		case "asked", "noted":
			r := CommandRecord{
				ID: e.ID, Kind: e.Kind, Role: e.Role, InstanceID: e.Instance, Argument: e.Argument, By: e.By, Asked: e.At, State: store.CommandAsked,
			}
			if end, is := ended[e.ID]; is {
				r.Ended, r.State, r.Error, r.Code = end.At, end.State, end.Text, end.Code
			} else if e.Event == "noted" {
				r.Ended, r.State, r.Error, r.Code = e.At, e.State, e.Text, e.Code
			}
			records = append(records, r)
		}
	}
	return records, nil
}
