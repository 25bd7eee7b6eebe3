package tenure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

// control is a Control on a host of its own.
func (c *cluster) control(by string) *Control {
	c.Helper()
	control, err := NewControl(c.net.Client("operator", nil), ControlOptions{Namespace: "tenure", By: by})
	require.NoError(c, err)
	return control
}

// pair is a, which leads, and b, which follows.
func (c *cluster) pair(change ...func(*Options)) (a, b *instance) {
	c.Helper()
	a = c.member("a", change...).start()
	c.until(time.Minute, a.IsLeader)
	b = c.member("b", change...).start()
	c.pass(time.Second)
	return a, b
}

// ask asks for something that Control itself does not ask for.
func (c *cluster) ask(control *Control, command store.Command) error {
	c.Helper()
	_, now, err := control.leader(background, "")
	require.NoError(c, err)
	return control.ask(background, now, command)
}

// commandHooks is the store of commands with something that happens right before a call.
type commandHooks struct {
	store.Commands
	send, start, end, note func()
	lost                   func() bool // whether the answer to a start is; nil: it is not
}

// once calls a function at its first call. Further ones do not wait for that.
func once(do func()) func() {
	var called atomic.Bool
	return func() {
		if !called.Swap(true) {
			do()
		}
	}
}

func (h commandHooks) before(do func()) {
	if do != nil {
		do()
	}
}

func (h commandHooks) SendCommand(ctx context.Context, c store.Command, bound time.Duration) (string, error) {
	h.before(h.send)
	return h.Commands.SendCommand(ctx, c, bound)
}

func (h commandHooks) StartCommand(ctx context.Context, c store.Command, entry, incarnation string) (string, error) {
	h.before(h.start)
	verdict, err := h.Commands.StartCommand(ctx, c, entry, incarnation)
	if h.lost != nil && h.lost() {
		return "", errNetwork
	}
	return verdict, err
}

func (h commandHooks) EndCommand(ctx context.Context, c store.Command, incarnation string, o store.CommandOutcome) error {
	h.before(h.end)
	return h.Commands.EndCommand(ctx, c, incarnation, o)
}

func (h commandHooks) NoteCommand(ctx context.Context, c store.Command, o store.CommandOutcome) error {
	h.before(h.note)
	return h.Commands.NoteCommand(ctx, c, o)
}

// inbox is how many commands wait for an instance.
func (c *cluster) inbox(id string) (n int) {
	c.redis.Do(func(m *miniredis.Miniredis) {
		if list, err := m.List("tenure:instance:" + id + ":commands"); err == nil {
			n = len(list)
		}
	})
	return n
}

var background = context.Background()

// TestControl asks two instances for all that there is, from a process that is none of them, and
// reads what became of it.
func TestControl(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil)) // one for both: it writes one line at a time
		a, b := c.pair(func(o *Options) { o.Logger = logger })
		control := c.control("ops")
		leader, err := control.Leader(background, "")
		require.NoError(c, err)
		require.Equal(c, "a", leader.InstanceID)

		began := c.now()
		require.NoError(c, control.Transfer(background, "", "b"))
		require.Less(c, c.now()-began, time.Second)
		c.until(time.Second, b.IsLeader)
		require.NoError(c, control.Resign(background, ""))
		c.until(time.Second, a.IsLeader)

		require.NoError(c, control.Drain(background, "a"))
		require.True(c, a.IsDraining())
		c.until(10*time.Second, b.IsLeader) // it stands back after its resignation
		counts, err := control.Registry().Counts(background)
		require.NoError(c, err)
		require.Equal(c, Counts{Active: 1, Draining: 1, Total: 2}, counts)
		require.NoError(c, control.Undrain(background, "a"))
		require.False(c, a.IsDraining())

		require.NoError(c, a.Control().Drain(background, "b"), "an instance may ask another")
		require.NoError(c, a.Control().Undrain(background, "b"))
		c.until(10*time.Second, a.IsLeader)
		require.NoError(c, a.Control().Resign(background, ""), "and itself")

		synctest.Wait()
		require.Contains(c, log.String(), `msg="taking a command" instance=a token=`)
		require.Contains(c, log.String(), `reason=transfer by=ops`)
		require.Contains(c, log.String(), `reason=resign by=a`, "it takes its own turn")
		require.Len(c, a.witness.told(EventCommandTaken), len(a.witness.told(EventCommandEnded)))
		records, err := control.Commands(background, 100)
		require.NoError(c, err)
		var lines []string
		for _, r := range records {
			require.False(c, r.Asked.IsZero() || r.Ended.Before(r.Asked))
			lines = append(lines, strings.Join([]string{r.By, r.Kind, r.InstanceID, r.Argument, r.State}, " "))
		}
		require.Equal(c, []string{
			"a resign a  done", "a undrain b  done", "a drain b  done", "ops undrain a  done", "ops drain a  done", "ops resign b  done", "ops transfer a b done",
		}, lines)
		few, err := control.Commands(background, 2)
		require.NoError(c, err)
		require.Equal(c, records[:2], few)
		require.Zero(c, c.inbox("a")+c.inbox("b"))
	})
}

// TestControlWithoutAnInstance: what needs no instance is done at once, and is in the list too.
func TestControlWithoutAnInstance(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		require.NoError(c, a.Tasks().Register(a.counts("tidy", Every(time.Hour))))
		a.start()
		c.pass(time.Minute)
		control := c.control("ops")
		require.NoError(c, control.Pause(background, "tidy", "too slow"))
		list, err := control.Tasks().List(background)
		require.NoError(c, err)
		require.True(c, list[0].Paused)
		require.Equal(c, TaskPause{By: "ops", Reason: "too slow", At: list[0].Pause.At}, list[0].Pause)
		require.NoError(c, control.Resume(background, "tidy"))
		require.ErrorIs(c, control.Pause(background, "none", ""), ErrNotFound)
		require.ErrorIs(c, control.Cancel(background, "tidy"), ErrNotFound)
		a.crash()
		require.NoError(c, control.Remove(background, "a"))
		require.Empty(c, a.record())
		require.ErrorIs(c, control.Remove(background, "a"), ErrNotFound)
		records, err := control.Commands(background, 100)
		require.NoError(c, err)
		var lines []string
		for _, r := range records {
			lines = append(lines, strings.TrimSpace(r.Kind+" "+r.InstanceID+r.Argument+" "+r.State+" "+r.Error))
		}
		require.Equal(c, []string{"remove a done", `cancel tidy failed tenure: not found: no run of task "tidy" is on`, `pause none failed tenure: not found: task "none" has no record`, "resume tidy done", "pause tidy done"}, lines)
	})
}

// TestControlAs: who asks, and the ID of what was asked for, before it has ended.
func TestControlAs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		var by atomic.Pointer[string]
		require.NoError(c, a.Tasks().Register(Task{Name: "tidy", Schedule: OnDemand(), Run: func(_ context.Context, run TaskRun) error {
			by.Store(&run.Args[0])
			return nil
		}}))
		a.start()
		c.pass(time.Minute)
		var ids []string
		control, err := c.control("ops").As("ann", func(id string) {
			require.False(c, a.IsDraining(), "nothing was done yet")
			ids = append(ids, id)
		})
		require.NoError(c, err)
		_, err = control.Trigger(background, "tidy", "now")
		require.NoError(c, err)
		c.until(time.Minute, func() bool { return by.Load() != nil })
		_, err = control.Trigger(background, "none")
		require.ErrorIs(c, err, ErrNotFound)
		require.NoError(c, control.Pause(background, "tidy", ""))
		require.ErrorIs(c, control.Drain(background, "nobody"), ErrNotFound) // nothing was asked for
		require.NoError(c, control.Drain(background, "a"))
		records, err := control.Commands(background, 100)
		require.NoError(c, err)
		var noted, lines []string
		for _, r := range slices.Backward(records) {
			noted, lines = append(noted, r.ID), append(lines, r.Kind+" "+r.InstanceID+r.Argument+" "+r.By+" "+r.State)
		}
		require.Equal(c, []string{"trigger tidy ann done", "trigger none ann failed", "pause tidy ann done", "drain a ann done"}, lines)
		require.Equal(c, noted, ids)
		_, err = control.As("ann\n", nil)
		require.ErrorIs(c, err, ErrMisconfigured)
		require.ErrorContains(c, err, "By = ")
	})
}

// TestControlRefusals: the errors of an instance come back as what they are.
func TestControlRefusals(t *testing.T) {
	inCluster(t, func(c *cluster) {
		control := c.control("ops")
		require.ErrorIs(c, control.Resign(background, ""), ErrNoLeader)
		require.ErrorIs(c, control.Drain(background, "a"), ErrNotFound)
		require.ErrorIs(c, control.Transfer(background, "", "no id"), ErrMisconfigured)
		require.ErrorIs(c, control.Resign(background, "no role"), ErrMisconfigured)
		c.redis.Do(func(m *miniredis.Miniredis) {
			m.HSet("tenure:instances", "foreign", `{"instance_id":"foreign","status":"active"}`)
			require.NoError(c, m.Set("tenure:leader:other", "foreign"))
		})
		require.ErrorIs(c, control.Undrain(background, "foreign"), ErrNotFound)
		require.ErrorIs(c, control.Resign(background, "other"), ErrNoLeader)

		a, _ := c.pair()
		err := control.Transfer(background, "", "gone")
		require.ErrorIs(c, err, ErrNotReady)
		require.ErrorContains(c, err, "instance a says: ")
		require.ErrorContains(c, err, `instance "gone" has not asked`)
		records, err := control.Commands(background, 1)
		require.NoError(c, err)
		require.Equal(c, "failed not_ready", records[0].State+" "+records[0].Code)
		ended := a.witness.told(EventCommandEnded)
		require.Len(c, ended, 1)
		require.ErrorIs(c, ended[0].Err, ErrNotReady)
		require.Equal(c, "transfer gone", ended[0].Reason+" "+ended[0].Subject)
		impatient, cancel := context.WithTimeoutCause(background, time.Second, errBroken)
		defer cancel()
		require.ErrorIs(c, control.Transfer(impatient, "", "gone"), errBroken)
	})
}

// TestCommandOfAnOlderTerm changes nothing in a younger one, and one for an older process nothing
// in its successor.
func TestCommandOfAnOlderTerm(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.pair()
		control := c.control("ops")
		old, err := control.Leader(background, "")
		require.NoError(c, err)
		require.NoError(c, a.Elector().Resign(background))
		c.until(time.Second, b.IsLeader)
		c.pass(10 * time.Second)
		require.NoError(c, b.Elector().Resign(background))
		c.until(time.Second, a.IsLeader)
		for _, kind := range []string{commandResign, commandTransfer} {
			for _, token := range []int64{old.Token, 0} {
				err = c.ask(control, store.Command{Instance: "a", Kind: kind, Token: token, Argument: "b"})
				require.ErrorIs(c, err, ErrNotLeader)
			}
		}
		require.True(c, a.IsLeader())
		for _, kind := range []string{commandDrain, commandUndrain} {
			err = c.ask(control, store.Command{Instance: "a", Kind: kind, Process: "another"})
			require.ErrorIs(c, err, ErrNotFound)
		}
		require.False(c, a.IsDraining())
		require.ErrorIs(c, c.ask(control, store.Command{Instance: "a", Kind: "dance"}), ErrMisconfigured)
	})
}

// TestControlOfOneTerm: who has seen a leader asks that one, and nobody who leads since.
func TestControlOfOneTerm(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.pair()
		control := c.control("ops")
		seen, err := control.Leader(background, "")
		require.NoError(c, err)
		require.NoError(c, control.TransferTerm(background, "", seen.Token, "b"))
		c.until(time.Second, b.IsLeader)
		next, err := control.Leader(background, "")
		require.NoError(c, err)
		for _, err := range []error{control.ResignTerm(background, "", seen.Token), control.TransferTerm(background, "", seen.Token, "a")} {
			require.ErrorIs(c, err, ErrNotLeader)
			require.EqualError(c, err, fmt.Sprintf("tenure: not the leader: the term of token %d is over, and b leads with token %d", seen.Token, next.Token))
		}
		c.pass(time.Minute)
		require.True(c, b.IsLeader())
		require.NoError(c, control.ResignTerm(background, "", next.Token))
		c.until(time.Second, a.IsLeader)
		for _, token := range []int64{0, -1} { // a zero is no wish for whoever leads
			require.ErrorIs(c, control.ResignTerm(background, "", token), ErrMisconfigured)
			require.ErrorIs(c, control.TransferTerm(background, "", token, ""), ErrMisconfigured)
		}
		require.ErrorIs(c, control.TransferTerm(background, "", next.Token, "no id"), ErrMisconfigured)
		require.True(c, a.IsLeader())
	})
}

// TestControlHasTheTimesOfTheService: in which state it shows an instance is by its own options.
func TestControlHasTheTimesOfTheService(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.pair()
		state := func(drifted, down time.Duration) InstanceState {
			control, err := NewControl(c.net.Client("operator", nil), ControlOptions{Namespace: "tenure", DriftedAfter: drifted, DownAfter: down})
			require.NoError(c, err)
			instance, err := control.Registry().Instance(background, "a")
			require.NoError(c, err)
			return instance.State
		}
		c.net.Partition("a", simnet.Requests|simnet.Replies, 0)
		c.pass(40 * time.Second)
		require.Equal(c, InstanceActive, state(0, 0))
		require.Equal(c, InstanceDrifted, state(10*time.Second, 0))
		require.Equal(c, InstanceDown, state(10*time.Second, 20*time.Second))
	})
	for _, o := range []ControlOptions{{DriftedAfter: -1}, {DownAfter: time.Minute}, {DriftedAfter: 31 * 24 * time.Hour}} {
		o.Namespace = "tenure"
		_, err := NewControl(redis.NewClient(&redis.Options{}), o)
		require.Regexp(t, `\n\tD[a-z]+After = `, err.Error(), "the option has its own name")
	}
}

// TestCommandWhoseHintIsLost is taken a second later: whoever waits repeats the hint.
func TestCommandWhoseHintIsLost(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		c.redis.Intercept(func(_, cmd string, _ []string) string {
			if strings.EqualFold(cmd, "lrange") {
				return "LOADING Redis is loading the dataset in memory"
			}
			return ""
		})
		drained := make(chan error, 1)
		control := c.control("ops")
		go func() { drained <- control.Drain(background, "a") }()
		c.pass(time.Second / 2)
		require.Equal(c, 1, c.inbox("a"), "the hint has come to nothing")
		require.Len(c, a.told(EventCommandsUnread), 1)
		c.redis.Intercept(nil)
		c.until(2*time.Second, a.IsDraining)
		synctest.Wait()
		c.pass(time.Second)
		require.NoError(c, <-drained)
	})
}

// TestCommandThatNobodyTakes expires, and is not executed when its instance comes back.
func TestCommandThatNobodyTakes(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.pair()
		control := c.control("ops")
		c.net.Partition("a", simnet.Requests|simnet.Replies, 0)
		for _, control := range []*Control{control, b.Control()} {
			began := c.now()
			err := control.Drain(background, "a")
			require.ErrorIs(c, err, ErrNotTaken)
			require.ErrorContains(c, err, "instance a has not taken it within 30s")
			require.InDelta(c, 30*time.Second, c.now()-began, float64(1100*time.Millisecond))
		}
		c.net.Heal("a")
		c.pass(time.Minute)
		require.False(c, a.IsDraining())
		records, err := control.Commands(background, 1)
		require.NoError(c, err)
		require.Equal(c, "expired", records[0].State)
	})
}

// TestControlTransferWaitsForTheHeir: of a transfer to one that does not ask the answer is
// ErrNotReady, however long the leases are.
func TestControlTransferWaitsForTheHeir(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair(func(o *Options) { o.Election.LeaseTTL = 5 * time.Minute })
		wait := a.Elector().Guarantees().TransferWait
		require.Greater(c, wait, 2*a.Options().ShutdownTimeout)
		began := c.now()
		err := c.control("ops").Transfer(background, "", "gone")
		require.ErrorIs(c, err, ErrNotReady)
		require.InDelta(c, wait, c.now()-began, float64(5*time.Second))
		require.True(c, a.IsLeader())
	})
}

// TestIdleControlAsksNothing: nobody looks for commands unless a hint or a heartbeat says that
// there are some.
func TestIdleControlAsksNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.pair()
		reads := 0
		c.redis.Intercept(func(_, cmd string, args []string) string {
			if len(args) > 0 && args[0] == "tenure:instance:a:commands" && !strings.EqualFold(cmd, "exists") { // in a heartbeat
				reads++
			}
			return ""
		})
		c.pass(10 * time.Minute)
		third := c.member("c").start()
		c.pass(time.Minute)
		require.NoError(c, c.control("ops").Drain(background, "c"))
		_, err := third.stop()
		require.NoError(c, err)
		c.pass(time.Second)
		require.Zero(c, reads, "none of the hints was for a")

		require.NoError(c, c.control("ops").Undrain(background, "a"))
		c.pass(time.Second)
		require.NotZero(c, reads)
		reads = 0
		c.pass(10 * time.Minute)
		require.Zero(c, reads, "nothing waits any more")
	})
}

// TestCommandWhileNobodyListened: an instance whose subscription stands again looks for commands at
// once, since their hints may have been missed.
func TestCommandWhileNobodyListened(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		command := store.Command{ID: newCommandID(), Instance: "a", Kind: commandDrain, Process: a.registry.incarnation}
		c.forget(command)
		c.pass(100 * time.Millisecond)
		require.False(c, a.IsDraining())
		a.hint(store.Hint{Type: store.HintConnected, Channel: "tenure:events"})
		c.pass(100 * time.Millisecond)
		require.True(c, a.IsDraining())
	})
}

// TestHostileCommands: nothing that lies in an inbox or in the audit stream stops what comes after
// it.
func TestHostileCommands(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		c.redis.Do(func(m *miniredis.Miniredis) {
			for _, entry := range []string{
				"", "{", "[]", "null", `"x"`, strings.Repeat("x", 1<<16), "\xff\xfe", `{"id":"x","instance":"a","kind":"resign"}{}`,
				`{"id":"x","instance":"b","kind":"undrain"}`, `{"id":"../x","instance":"a","kind":"undrain"}`, `{"id":"forged","instance":"a","kind":"undrain"}`,
				`{"id":"x","instance":"a","kind":"drain","more":1}`, `{"id":"x","instance":"a","kind":"resign","token":-1}`, `{"id":"x","instance":"a","kind":"resign","token":1e99}`,
			} {
				_, err := m.Push("tenure:instance:a:commands", entry)
				require.NoError(c, err)
			}
			_, err := m.XAdd("tenure:commands", "*", []string{"event", "asked", "kind", strings.Repeat("k", 9000), "x", "y"})
			require.NoError(c, err)
		})
		require.NoError(c, control.Drain(background, "a"))
		c.pass(time.Second)
		require.Zero(c, c.inbox("a"))
		require.Len(c, a.told(EventCommandTaken), 1, "what was never sent is not executed")
		c.send(control, store.Command{Instance: "a", Kind: commandUndrain, By: strings.Repeat("b", 3000)})
		c.pass(time.Second)
		taken := a.witness.told(EventCommandTaken)
		require.Len(c, taken, 2)
		require.Len(c, taken[1].By, store.MaxCommandText)
		records, err := control.Commands(background, 100)
		require.NoError(c, err)
		require.Len(c, records, 3)
		require.Len(c, records[2].Kind, store.MaxCommandText)

		c.redis.Do(func(m *miniredis.Miniredis) {
			m.Del("tenure:instance:a:commands")
			require.NoError(c, m.Set("tenure:instance:a:commands", "a text"))
		})
		err = control.Undrain(background, "a")
		require.ErrorIs(c, err, ErrMisconfigured)
		require.ErrorContains(c, err, "tenure:instance:a:commands belongs to something else")
	})
}

// TestCommandStartWithoutAnswer: a command was taken, and the answer is lost. It is asked for
// again, and executed once.
func TestCommandStartWithoutAnswer(t *testing.T) {
	for outage, late := range map[time.Duration]bool{6 * time.Second: false, time.Minute: true} {
		t.Run(outage.String(), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a, _ := c.pair()
				control := c.control("ops")
				require.NoError(c, control.Undrain(background, "a")) // the scripts are loaded
				a.backend.commands = commandHooks{Commands: a.backend.commands, start: once(func() {
					c.net.Partition("a", simnet.Replies, outage)
				})}
				began := c.now()
				err := control.Drain(background, "a")
				require.Less(c, c.now()-began, outage+20*time.Second)
				if late {
					require.ErrorIs(c, err, ErrNotTaken, "nobody expects it any more")
				} else {
					require.NoError(c, err)
				}
				require.Equal(c, !late, a.IsDraining())
				c.pass(time.Minute)
				require.Len(c, a.seen(func(e Event) bool { return e.Type == EventCommandTaken && e.Reason == commandDrain }), map[bool]int{false: 1}[late])
			})
		})
	}
}

// forget has Redis forget that a command was taken: it waits again.
func (c *cluster) forget(command store.Command) {
	c.redis.Do(func(m *miniredis.Miniredis) {
		m.HSet("tenure:command:"+command.ID, "state", store.CommandAsked, "until", "9000000000000000")
		_, err := m.Push("tenure:instance:"+command.Instance+":commands", command.Entry())
		require.NoError(c, err)
	})
}

// stands is how a command stands. Nobody is told to look at it for that.
func (c *cluster) stands(control *Control, command store.Command) string {
	c.Helper()
	o, err := control.store.LookCommand(background, command, false)
	require.NoError(c, err)
	return strings.TrimSpace(o.State + " " + o.Code)
}

// TestCommandThatRedisForgets is not executed twice: a failover lost that it was taken, however
// many were taken since.
func TestCommandThatRedisForgets(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		require.NoError(c, control.Drain(background, "a"))
		records, err := control.Commands(background, 1)
		require.NoError(c, err)
		for range 20 {
			require.NoError(c, control.Undrain(background, "a"))
		}
		command := store.Command{ID: records[0].ID, Instance: "a", Kind: commandDrain, Process: a.registry.incarnation}
		c.forget(command)
		a.commands.wake.nudge()
		c.pass(time.Second)
		require.False(c, a.IsDraining())
		require.Equal(c, "done", c.stands(control, command), "it says again what became of it")
	})
}

// TestCommandThatRedisForgetsTooSoon has not ended yet: nobody says so before it has.
func TestCommandThatRedisForgetsTooSoon(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start(a.works("w", 5*time.Second))
		c.until(time.Minute, a.IsLeader)
		control := c.control("ops")
		drained := make(chan error, 1)
		go func() { drained <- control.Drain(background, "a") }()
		c.pass(time.Second)
		records, err := control.Commands(background, 1)
		require.NoError(c, err)
		c.forget(store.Command{ID: records[0].ID, Instance: "a", Kind: commandDrain, Process: a.registry.incarnation})
		c.pass(2 * time.Second)
		require.Empty(c, drained, "its work still runs")
		require.Zero(c, c.inbox("a"))
		require.NoError(c, <-drained)
		require.Contains(c, c.noted(), "a w drained")
		require.Len(c, a.told(EventCommandTaken), 1)
	})
}

// TestCommandsThatAreRememberedAreBounded: the oldest ones are forgotten.
func TestCommandsThatAreRememberedAreBounded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "a"})
		l := &a.commands
		for n := range maxRuns + 10 {
			l.begin(background, store.Command{ID: strconv.Itoa(n), Instance: "a", Kind: commandUndrain, Process: a.registry.incarnation}, false)
		}
		l.executing.Wait()
		require.Len(c, l.runs, maxRuns)
		require.Equal(c, "10", l.runs[0].id)
	})
}

// TestCommandEndInAnOutage: Redis is away as a command ends, or the client hangs. Whoever asked
// learns of it soon afterwards.
func TestCommandEndInAnOutage(t *testing.T) {
	for name, test := range map[string]struct {
		fails func(c *cluster)
		want  time.Duration
	}{
		"a moment":      {func(c *cluster) { c.refuses("a", "hset", 50*time.Millisecond) }, time.Second},
		"a minute":      {func(c *cluster) { c.redis.Restart(true, time.Minute) }, 80 * time.Second},
		"eight minutes": {func(c *cluster) { c.redis.Restart(true, 8*time.Minute) }, 8*time.Minute + 20*time.Second},
		"a call hangs":  {func(*cluster) { time.Sleep(time.Minute) }, 2 * commandBound},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a, _ := c.pair()
				control := c.control("ops")
				require.NoError(c, control.Undrain(background, "a")) // the scripts are loaded
				fails, tries := once(func() { test.fails(c) }), atomic.Int64{}
				a.backend.commands = commandHooks{Commands: a.backend.commands, end: func() { tries.Add(1); fails() }}
				began := c.now()
				require.NoError(c, control.Drain(background, "a"))
				require.Less(c, c.now()-began, test.want)
				require.LessOrEqual(c, tries.Load(), 10+int64(test.want/commandBound), "it is tried less and less often")
				c.pass(2 * time.Minute) // what hangs returns
			})
		})
	}
}

// refuses has Redis refuse a command of a host for a while.
func (c *cluster) refuses(host, command string, during time.Duration) {
	until := c.now() + during
	c.redis.Intercept(func(from, cmd string, _ []string) string {
		if from == host && strings.EqualFold(cmd, command) && c.now() < until {
			return "LOADING Redis is loading the dataset in memory"
		}
		return ""
	})
}

// TestStopWithACommand: a process that is told to stop ends what it was asked for, and says what
// became of it, in one try more if need be. It says too that nothing comes of a command if it never
// heard whether it has taken it.
func TestStopWithACommand(t *testing.T) {
	stop := func(c *cluster, a *instance) time.Duration {
		took, err := a.stop()
		require.NoError(c, err)
		return took
	}
	ask := func(c *cluster) <-chan error {
		asked := make(chan error, 1)
		go func() { asked <- c.control("ops").Drain(background, "a") }()
		return asked
	}
	t.Run("that is executed", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			a := c.member("a")
			a.start(a.works("w", 5*time.Second))
			c.until(time.Minute, a.IsLeader)
			asked := ask(c)
			c.pass(time.Second)
			stop(c, a)
			require.NoError(c, <-asked)
		})
	})
	t.Run("that takes longer than the rest", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			a, _ := c.pair()
			a.commands.obey = func(store.Command) func(context.Context) error {
				return func(ctx context.Context) error {
					select {
					case <-time.After(5 * time.Second):
						return nil
					case <-ctx.Done(): // the stop cuts nothing short
						return context.Cause(ctx)
					}
				}
			}
			asked := ask(c)
			c.pass(time.Second)
			require.InDelta(c, 4*time.Second, stop(c, a), float64(100*time.Millisecond))
			require.NoError(c, <-asked)
		})
	})
	for name, heals := range map[string]bool{"whose end is refused once": true, "whose end is refused": false} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a, _ := c.pair()
				a.backend.commands = commandHooks{Commands: a.backend.commands, end: once(func() { c.refuses("a", "hset", time.Hour) })}
				asked := ask(c)
				c.until(time.Minute, func() bool { return len(a.told(EventCommandEnded)) == 1 })
				c.pass(firstEndPause / 2)
				if heals {
					c.redis.Intercept(nil)
				}
				require.Less(c, stop(c, a), time.Second)
				if heals {
					require.NoError(c, <-asked)
					return
				}
				c.pass(time.Second)
				require.Empty(c, asked)
				require.ErrorIs(c, <-asked, ErrUnreachable)
			})
		})
	}
	t.Run("that cannot be read", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			a, _ := c.pair()
			c.net.Partition("a", simnet.Both, 0)
			a.commands.wait()
			c.pass(time.Second)
			_, err := a.stop()
			require.NoError(c, err)
			require.Empty(c, a.told(EventCommandsUnread), "nobody has waited for the answer")
		})
	})
	t.Run("that comes later", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			a, _ := c.pair()
			stop(c, a)
			for _, kind := range []string{commandDrain, commandUndrain} {
				rest := a.obey(store.Command{Instance: "a", Kind: kind, Process: a.registry.incarnation})
				require.ErrorIs(c, rest(background), ErrStopped)
			}
		})
	})
	t.Run("whose start has no answer", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			a, _ := c.pair()
			a.backend.commands = commandHooks{Commands: a.backend.commands, lost: func() bool { return true }}
			asked := ask(c)
			c.pass(hintSpacing / 2)
			require.Zero(c, c.inbox("a"), "it was taken")
			require.Len(c, a.told(EventCommandsUnread), 1)
			stop(c, a)
			began := c.now()
			require.ErrorIs(c, <-asked, ErrStopped)
			require.LessOrEqual(c, c.now()-began, hintSpacing+100*time.Millisecond)
			require.Empty(c, a.told(EventCommandTaken))
		})
	})
}

// TestDrainThatIsUndrained: who asked for the drain does not hear that the instance leads nothing,
// since it holds its lease still, or may lead again. Whose drain was over before hears of no error.
func TestDrainThatIsUndrained(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 2 * time.Minute })
		a.start(a.works("w", time.Minute))
		c.until(time.Minute, a.IsLeader)
		drained := make(chan error, 1)
		go func() { drained <- c.control("ann").Drain(background, "a") }()
		c.pass(10 * time.Second)
		require.NoError(c, c.control("bob").Undrain(background, "a"))
		err := <-drained
		require.Equal(c, ElectionDraining, a.Elector().Status().State)
		require.ErrorIs(c, err, ErrCommandFailed)
		require.ErrorContains(c, err, "instance a says: the drain was ended by Undrain")

		c.until(3*time.Minute, a.IsLeader)
		require.NoError(c, c.control("ann").Drain(background, "a"))
		require.NoError(c, c.control("bob").Undrain(background, "a"))
	})
}

// doneOrUndrained is what a drain may say that an undrain has followed at once.
func doneOrUndrained(err error) bool {
	return err == nil || errors.Is(err, ErrCommandFailed) && strings.Contains(err.Error(), "was ended by Undrain")
}

// TestCommandsToOneThatStops are answered while its work drains, which may take long: who asks need
// not wait for the end of the time within which a command must be taken.
func TestCommandsToOneThatStops(t *testing.T) {
	stopping := func(c *cluster) (a *instance, control *Control) {
		a = c.member("a", func(o *Options) { o.ShutdownTimeout = time.Minute })
		a.start(a.works("w", 40*time.Second))
		c.until(time.Minute, a.IsLeader)
		a.halt(nil)
		c.pass(time.Second)
		require.Equal(c, ElectionDraining, a.Elector().Status().State)
		return a, c.control("ops")
	}
	for kind, ask := range map[string]struct {
		of     func(*Control) error
		wanted error
	}{
		commandDrain:    {func(c *Control) error { return c.Drain(background, "a") }, ErrStopped},
		commandUndrain:  {func(c *Control) error { return c.Undrain(background, "a") }, ErrStopped},
		commandResign:   {func(c *Control) error { return c.Resign(background, "") }, ErrNotLeader}, // its term is over
		commandTransfer: {func(c *Control) error { return c.Transfer(background, "", "b") }, ErrNotLeader},
	} {
		t.Run(kind, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a, control := stopping(c)
				began := c.now()
				err := ask.of(control)
				require.ErrorIs(c, err, ask.wanted)
				require.NotErrorIs(c, err, ErrNotTaken)
				require.Less(c, c.now()-began, 2*hintSpacing, "it is not left for another process of the ID")
				require.Equal(c, ElectionDraining, a.Elector().Status().State)
				require.NoError(c, <-a.ended)
			})
		})
	}
}

// TestOverdueCommandThatRedisForgets: that it comes to nothing is said again.
func TestOverdueCommandThatRedisForgets(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "a"})
		ends := 0
		a.backend.commands = commandHooks{Commands: a.backend.commands, end: func() { ends++ }}
		for n := range 2 {
			a.commands.begin(background, store.Command{ID: "x", Instance: "a", Kind: commandUndrain, Process: a.registry.incarnation}, true)
			a.commands.executing.Wait()
			require.Equal(c, n+1, ends)
		}
		require.Empty(c, a.told(EventCommandTaken))
	})
}

// TestCommandLastsAsLongAsADrain: work may take nearly ShutdownTimeout to return.
func TestCommandLastsAsLongAsADrain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 40 * time.Second })
		a.start(a.works("w", 35*time.Second))
		c.until(time.Minute, a.IsLeader)
		require.NoError(c, c.control("ops").Drain(background, "a"))
		require.Contains(c, c.noted(), "a w drained")
	})
	inCluster(t, func(c *cluster) { // longer than what has ended is known
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 2 * time.Hour })
		a.start(a.works("w", 25*time.Minute))
		c.until(time.Minute, a.IsLeader)
		control := c.control("ops")
		require.NoError(c, control.Drain(background, "a"))
		records, err := control.Commands(background, 1)
		require.NoError(c, err)
		require.Equal(c, store.CommandDone, records[0].State)
		require.Equal(c, 25*time.Minute, records[0].Ended.Sub(records[0].Asked).Round(time.Minute))
	})
}

// TestCommandHeldUp has no effect: a Drain arrives minutes after its caller gave up and undrained
// the instance.
func TestCommandHeldUp(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		control.store = commandHooks{Commands: control.store, send: once(func() {
			c.net.SetFaults("operator", simnet.Faults{DelayRequest: 1, DelayMin: 5 * time.Minute, DelayMax: 5*time.Minute + time.Second})
		})}
		impatient, cancel := context.WithTimeout(background, 2*time.Second)
		defer cancel()
		require.Error(c, control.Drain(impatient, "a"))
		c.net.SetFaults("operator", simnet.Faults{})
		require.NoError(c, control.Undrain(background, "a"))
		c.pass(10 * time.Minute)
		require.False(c, a.IsDraining())
		require.Empty(c, a.told(EventDrainBegan))
		err := control.ask(background, 1, store.Command{Instance: "a", Kind: commandDrain, Process: a.registry.incarnation})
		require.ErrorIs(c, err, ErrNotTaken)
		require.ErrorContains(c, err, "was held up for more than 30s and has no effect")
	})
}

// TestCommandsDoNotWaitForEachOther: a drain that waits for work holds up neither what ends it nor
// another command.
func TestCommandsDoNotWaitForEachOther(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 2 * time.Minute })
		a.start(a.works("w", time.Minute))
		c.until(time.Minute, a.IsLeader)
		control := c.control("ops")
		var drains sync.WaitGroup
		for range maxExecuting + 1 {
			drains.Go(func() { _ = control.Drain(background, "a") })
		}
		c.pass(time.Second)
		require.True(c, a.IsDraining())
		require.Equal(c, 1, c.inbox("a"), "they are bounded")
		began := c.now()
		require.NoError(c, control.Undrain(background, "a"))
		require.Less(c, c.now()-began, time.Second)
		drains.Wait()
		require.Zero(c, c.inbox("a"))
	})
	inCluster(t, func(c *cluster) {
		a, _ := c.pair(func(o *Options) { o.Election.LeaseTTL = 30 * time.Second })
		control := c.control("ops")
		transferred := make(chan error, 1)
		go func() { transferred <- control.Transfer(background, "", "gone") }()
		c.pass(time.Second)
		began := c.now()
		require.NoError(c, control.Drain(background, "a"))
		require.Less(c, c.now()-began, time.Second)
		require.ErrorIs(c, <-transferred, ErrNotLeader, "the term has ended")
		require.True(c, a.IsDraining())
	})
}

// TestUndrainAfterDrains: what was asked for last counts, however many drains are executed and
// wait, and a drain that was asked for before is not begun after it.
func TestUndrainAfterDrains(t *testing.T) {
	for _, drains := range []int{maxExecuting + 1, 2*maxExecuting + 1} {
		t.Run(strconv.Itoa(drains), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.member("a", func(o *Options) { o.ShutdownTimeout = 2 * time.Minute })
				a.start(a.works("w", time.Minute))
				c.until(time.Minute, a.IsLeader)
				control := c.control("ops")
				var waits sync.WaitGroup
				for range drains {
					waits.Go(func() { assert.ErrorIs(c, control.Drain(background, "a"), ErrCommandFailed) })
				}
				c.pass(time.Second)
				require.Equal(c, drains-maxExecuting, c.inbox("a"), "the others are executed")
				began := c.now()
				require.NoError(c, control.Undrain(background, "a"))
				require.Less(c, c.now()-began, time.Second)
				waits.Wait()
				require.Less(c, c.now()-began, 5*time.Second)
				require.Zero(c, c.inbox("a"))
				require.False(c, a.IsDraining())
				require.Len(c, a.told(EventDrainBegan), 1)
				c.until(3*time.Minute, a.IsLeader)
			})
		})
	}
}

// unreadInboxes returns a switch that keeps every process from reading its commands.
func unreadInboxes(c *cluster) *atomic.Bool {
	on := new(atomic.Bool)
	c.redis.Intercept(func(_, cmd string, _ []string) string {
		if on.Load() && strings.EqualFold(cmd, "lrange") {
			return "LOADING Redis is loading the dataset in memory"
		}
		return ""
	})
	return on
}

// TestDrainsInOrder: of commands that are read in one look the last one counts, however their
// goroutines run.
func TestDrainsInOrder(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		deaf := unreadInboxes(c)
		for round := range 20 {
			last := round%2 == 1 // whether it drains in the end
			deaf.Store(true)
			var asked sync.WaitGroup
			for i := range 4 {
				ask := control.Undrain
				if last == (i%2 == 1) {
					ask = control.Drain
				}
				asked.Go(func() { assert.True(c, doneOrUndrained(ask(background, "a"))) })
				c.pass(20 * time.Millisecond) // it is in the inbox behind the one before
			}
			require.Equal(c, 4, c.inbox("a"))
			deaf.Store(false)
			asked.Wait()
			require.Equal(c, last, a.IsDraining(), round)
		}
	})
}

// TestDrainsInOrderWithoutAnAnswer: what was asked for after a drain is not begun before it, though
// the answer to its start is lost.
func TestDrainsInOrderWithoutAnAnswer(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		starts := 0
		a.backend.commands = commandHooks{Commands: a.backend.commands, lost: func() bool { starts++; return starts == 1 }}
		deaf := unreadInboxes(c)
		deaf.Store(true)
		var asked sync.WaitGroup
		for _, ask := range []func(context.Context, string) error{control.Drain, control.Undrain} {
			asked.Go(func() { assert.True(c, doneOrUndrained(ask(background, "a"))) })
			c.pass(20 * time.Millisecond)
		}
		require.Equal(c, 2, c.inbox("a"))
		deaf.Store(false)
		asked.Wait()
		require.Equal(c, 3, starts)
		require.Equal(c, []string{"drain_began", "drain_ended"}, a.told(EventDrainBegan, EventDrainEnded))
		require.False(c, a.IsDraining())
	})
}

// send leaves a command for an instance, and nobody waits for it: its hint is not repeated.
func (c *cluster) send(control *Control, command store.Command) store.Command {
	c.Helper()
	command.ID = newCommandID()
	command.NotAfter = c.redis.Now().Add(time.Minute).UnixMilli()
	verdict, err := control.store.SendCommand(background, command, time.Minute)
	require.NoError(c, err)
	require.Equal(c, store.CommandSent, verdict)
	return command
}

// TestCommandThatIsReadTooLate is not executed: its time was over before anybody looked at it.
func TestCommandThatIsReadTooLate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		unreadInboxes(c).Store(true)
		late := store.Command{
			ID: newCommandID(), Instance: "a", Kind: commandDrain, Process: a.registry.incarnation, NotAfter: c.redis.Now().Add(time.Minute).UnixMilli(),
		}
		_, err := control.store.SendCommand(background, late, time.Second)
		require.NoError(c, err)
		c.send(control, store.Command{Instance: "a", Kind: commandUndrain, Process: a.registry.incarnation}) // keeps the inbox
		c.pass(5 * time.Second)
		require.Equal(c, 2, c.inbox("a"))
		c.redis.Intercept(nil)
		a.commands.wait()
		c.pass(time.Second)
		require.Zero(c, c.inbox("a"))
		require.Equal(c, "expired expired", c.stands(control, late))
		require.Empty(c, a.told(EventDrainBegan))
	})
}

// TestCommandTakesAFreePlace: one that waits since as many are executed as may be is taken as soon
// as one of those has ended, and not at the next look.
func TestCommandTakesAFreePlace(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		ends := make(chan struct{})
		a.commands.obey = func(store.Command) func(context.Context) error {
			return func(context.Context) error { <-ends; return nil }
		}
		for range maxExecuting + 1 {
			c.send(control, store.Command{Instance: "a", Kind: commandResign})
		}
		c.pass(hintSpacing * 3 / 2) // between two looks
		require.Equal(c, 1, c.inbox("a"))
		ends <- struct{}{}
		c.pass(hintSpacing / 10)
		require.Zero(c, c.inbox("a"))
		close(ends)
		c.pass(time.Second)
	})
}

// TestCommandForNobodyHere: what is meant for another term, or another process, is left to a twin
// for two seconds, and refused then. What is meant for none is refused at once.
func TestCommandForNobodyHere(t *testing.T) {
	for name, test := range map[string]struct {
		command store.Command
		want    string
		waits   bool
	}{
		"another term":    {store.Command{Kind: commandResign, Token: 1}, "failed not_leader", true},
		"another heir":    {store.Command{Kind: commandTransfer, Token: 1, Argument: "b"}, "failed not_leader", true},
		"another process": {store.Command{Kind: commandDrain, Process: "another"}, "failed not_found", true},
		"no term":         {store.Command{Kind: commandResign}, "failed not_leader", false},
		"no role":         {store.Command{Kind: commandResign, Role: "none", Token: 1}, "failed not_leader", false},
		"no process":      {store.Command{Kind: commandUndrain}, "failed not_found", false},
		"no kind":         {store.Command{Kind: "dance"}, "failed misconfigured", false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a, _ := c.pair()
				control := c.control("ops")
				test.command.Instance = "a"
				command := c.send(control, test.command)
				took := c.until(time.Minute, func() bool { return c.stands(control, command) == test.want })
				if test.waits {
					require.GreaterOrEqual(c, took, leftForAnother)
					require.LessOrEqual(c, took, leftForAnother+hintSpacing+100*time.Millisecond)
				} else {
					require.Less(c, took, hintSpacing/10)
				}
				require.True(c, a.IsLeader())
				require.False(c, a.IsDraining())
			})
		})
	}
}

// failingCommands is a store of commands that cannot be read.
type failingCommands struct{ store.Commands }

func (failingCommands) ReadCommands(context.Context, string, []string) ([]string, error) {
	return nil, errNetwork
}

// TestCommandsThatWait: what is noted of an inbox. A command waits for as long as its entry is
// there, or is asked for again for an hour if it may have been taken; else nobody looks for it but
// by a hint.
func TestCommandsThatWait(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "a"})
		l := &a.commands
		entry := func(id string) string { return store.Command{ID: id, Instance: "a", Kind: commandDrain}.Entry() }
		waits := func() (ids []string) {
			for _, w := range l.waiting {
				ids = append(ids, w.ID)
			}
			return ids
		}
		require.Empty(c, l.note([]string{entry("x"), entry("y"), entry("z")}))
		x := l.waiting[0]
		c.pass(time.Second)
		require.Equal(c, []string{"nonsense"}, l.note([]string{entry("x"), "nonsense", entry("y"), entry("z")}))
		require.Equal(c, []string{"x", "y", "z"}, waits())
		require.Same(c, x, l.waiting[0], "since it was seen first")
		x.asked = true
		l.note([]string{entry("z")})
		require.Equal(c, []string{"x", "z"}, waits())

		l.c.backend.commands = failingCommands{}
		l.look(background)
		require.Equal(c, []string{"x"}, waits())
		c.pass(maxCommandTimeout - 2*time.Second)
		l.look(background)
		require.Equal(c, []string{"x"}, waits())
		c.pass(2 * time.Second)
		l.look(background)
		require.Empty(c, waits())
	})
}

// endlessCommands is an inbox in which something lies that is no command, whatever is taken out.
type endlessCommands struct {
	store.Commands
	reads int
}

func (e *endlessCommands) ReadCommands(context.Context, string, []string) ([]string, error) {
	e.reads++
	return []string{"nonsense"}, nil
}

// TestInboxWithoutAnEnd: a server that answers nonsense is asked eight times a hint.
func TestInboxWithoutAnEnd(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "a"})
		endless := &endlessCommands{}
		a.backend.commands = endless
		a.commands.look(background)
		require.Equal(c, maxRounds, endless.reads)
	})
}

// TestCommandsUnreadAreNewsEachTime: an inbox that cannot be read is reported once until it can be.
func TestCommandsUnreadAreNewsEachTime(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		deaf := unreadInboxes(c)
		for n := range 3 {
			require.Len(c, a.told(EventCommandsUnread), n)
			deaf.Store(true)
			asked := make(chan error, 1)
			go func() { asked <- control.Undrain(background, "a") }() // repeats its hint
			c.pass(10 * time.Second)
			deaf.Store(false)
			require.NoError(c, <-asked)
			require.Len(c, a.told(EventCommandsUnread), n+1)
		}
	})
}

// TestDrainDoneIsSaidOnce: whoever gives up waiting for a drain has not seen its end, and of those
// that have, one says so. A process that was told to stop drains too.
func TestDrainDoneIsSaidOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 2 * time.Minute })
		a.start(a.works("w", time.Minute))
		c.until(time.Minute, a.IsLeader)
		impatient, cancel := context.WithTimeout(background, 2*time.Second)
		defer cancel()
		require.ErrorIs(c, a.Drain(impatient), context.DeadlineExceeded)
		c.pass(time.Second)
		require.Empty(c, a.told(EventDrainDone))
		for range 2 {
			require.NoError(c, a.Drain(background))
			c.pass(time.Second)
			require.Len(c, a.told(EventDrainDone), 1)
		}
		a.Undrain()
		require.False(c, a.IsDraining())
		_, err := a.stop()
		require.NoError(c, err)
		require.True(c, a.IsDraining())
	})
}

// TestRunEndsWithACommand: a command that is on, and a Redis that does not answer, do not hold up
// Run.
func TestRunEndsWithACommand(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 10 * time.Second })
		a.start(func(ctx context.Context, _ Term) error { <-ctx.Done(); time.Sleep(40 * time.Second); return nil })
		c.until(time.Minute, a.IsLeader)
		control := c.control("ops")
		go func() { _ = control.Drain(background, "a") }()
		c.pass(time.Second)
		c.net.Partition("a", simnet.Both, 0)
		took, _ := a.stop()
		require.LessOrEqual(c, took, 10*time.Second)
		c.net.Heal("a")
		c.pass(15 * time.Minute)
	})
}

// TestCommandOfATwin: of two processes of one ID the one that a command is meant for takes it,
// though the other one looks first.
func TestCommandOfATwin(t *testing.T) {
	for name, test := range map[string]struct {
		meant string // the host of the one that it is meant for
		ask   func(*Control) error
	}{
		"transfer": {"a", func(c *Control) error { return c.Transfer(background, "", "b") }}, // by the leader
		"drain":    {"a2", func(c *Control) error { return c.Drain(background, "a") }},       // by the one that has the record
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a, _ := c.pair()
				coordinator, err := New(c.net.Client("a2", nil), Options{Namespace: "tenure", InstanceID: "a", Election: ElectionOptions{LeaseTTL: 10 * time.Second}})
				require.NoError(c, err)
				twin := c.join("a2", coordinator).start()
				c.pass(time.Second)
				refused := false
				c.redis.Intercept(func(host, cmd string, _ []string) string {
					if host != test.meant || !strings.EqualFold(cmd, "lrange") || refused {
						return ""
					}
					refused = true
					return "LOADING Redis is loading the dataset in memory"
				})
				require.NoError(c, test.ask(c.control("ops")))
				require.True(c, refused)
				require.False(c, a.IsDraining())
				require.Equal(c, name == "drain", twin.IsDraining())
			})
		})
	}
}

// TestControlInsideWork: work that asks its own process does not wait for itself.
func TestControlInsideWork(t *testing.T) {
	for name, do := range map[string]func(*Control, context.Context) error{
		commandResign:   func(c *Control, ctx context.Context) error { return c.Resign(ctx, "") },
		commandTransfer: func(c *Control, ctx context.Context) error { return c.Transfer(ctx, "", "b") },
		commandDrain:    func(c *Control, ctx context.Context) error { return c.Drain(ctx, "a") },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a, b := c.member("a"), c.member("b")
				asked := make(chan error, 1)
				require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: OnDemand(), Run: func(ctx context.Context, _ TaskRun) error {
					err := do(a.Control(), ctx)
					asked <- err
					return err
				}}))
				a.start()
				c.until(time.Minute, a.IsLeader)
				b.start()
				c.pass(time.Second)
				_, err := a.Tasks().Trigger(background, "t")
				require.NoError(c, err)
				require.NoError(c, <-asked)
				require.Less(c, c.until(time.Minute, b.IsLeader), 2*time.Second)
				records, err := a.Control().Commands(background, 1)
				require.NoError(c, err)
				require.Equal(c, CommandRecord{
					ID: records[0].ID, Kind: name, InstanceID: "a", Argument: map[string]string{commandTransfer: "b"}[name], By: "a",
					Asked: records[0].Asked, Ended: records[0].Ended, State: "done",
				}, records[0])
			})
		})
	}
}

// TestControlOfAnotherInsideWork: what work asks of another process is left to that one.
func TestControlOfAnotherInsideWork(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.member("a"), c.member("b").start()
		c.until(time.Minute, b.IsLeader)
		asked := make(chan error, 1)
		a.start(func(ctx context.Context, _ Term) error {
			asked <- a.Control().Drain(ctx, "b")
			<-ctx.Done()
			return nil
		})
		c.pass(time.Second)
		require.NoError(c, b.Elector().Resign(background))
		require.NoError(c, <-asked)
		require.True(c, b.IsDraining())
		require.False(c, a.IsDraining())
	})
}

// TestControlKnowsTheLeaderKeys: that of a coordinator knows the keys of its roles, and that of a
// process apart those that it was told.
func TestControlKnowsTheLeaderKeys(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		_, err := a.AddRole("mail", ElectionOptions{LeaseTTL: 10 * time.Second, LeaderKey: "mail:leader"})
		require.NoError(c, err)
		mail, _ := a.Role("mail")
		a.start()
		c.until(time.Minute, mail.IsLeader)
		apart, err := NewControl(c.net.Client("operator", nil), ControlOptions{Namespace: "tenure", LeaderKeys: map[string]string{"mail": "mail:leader"}})
		require.NoError(c, err)
		for _, control := range []*Control{a.Control(), apart} {
			c.until(time.Minute, mail.IsLeader)
			leader, err := control.Leader(background, "mail")
			require.NoError(c, err)
			require.Equal(c, "a", leader.InstanceID)
			require.NoError(c, control.Resign(background, "mail"))
		}
		for _, e := range a.witness.told(EventCommandTaken) {
			require.Equal(c, "mail", e.Role)
		}
		_, err = c.control("ops").Leader(background, "mail")
		require.ErrorIs(c, err, ErrNoLeader)
	})
}

// TestControlOfANamedDefaultRole: "" is the default role, whatever it is called.
func TestControlOfANamedDefaultRole(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Election.Role = "main" }).start()
		c.until(time.Minute, a.IsLeader)
		control := a.Control()
		leader, err := control.Leader(background, "")
		require.NoError(c, err)
		require.Equal(c, "a", leader.InstanceID)
		require.Equal(c, "main", leader.Role)
		terms, err := control.Terms(background, "", 10)
		require.NoError(c, err)
		require.Len(c, terms, 1)
		require.NoError(c, control.Resign(background, ""))
		require.ErrorIs(c, c.control("ops").Resign(background, ""), ErrNoLeader, "a process apart knows of no name")
	})
}

// TestAudit: whatever took effect is noted, once, and a spoilt stream stops nothing.
func TestAudit(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		c.redis.Do(func(m *miniredis.Miniredis) { require.NoError(c, m.Set("tenure:commands", "a text")) })
		require.NoError(c, control.Drain(background, "a"))
		require.True(c, a.IsDraining())
	})
	inCluster(t, func(c *cluster) {
		control, err := c.control("ops").As("ann", func(id string) { c.Error("named though it was not noted: " + id) })
		require.NoError(c, err)
		c.net.Partition("operator", simnet.Both, 0)
		require.ErrorIs(c, control.Pause(background, "tidy", ""), ErrUnreachable)
	})
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		require.NoError(c, a.Tasks().Register(a.counts("tidy", Every(time.Hour))))
		a.start()
		c.pass(time.Minute)
		control := c.control("ops")
		require.NoError(c, control.Resume(background, "tidy")) // the scripts are loaded
		control.store = commandHooks{Commands: control.store, note: once(func() { c.net.Partition("operator", simnet.Replies, time.Second) })}
		require.NoError(c, control.Pause(background, "tidy", ""))
		c.pass(time.Minute)
		records, err := control.Commands(background, 10)
		require.NoError(c, err)
		require.Len(c, records, 2)

		c.net.SetFaults("operator", simnet.Faults{MinLatency: 20 * time.Millisecond, MaxLatency: 21 * time.Millisecond})
		unknown := 0
		for d := 10 * time.Millisecond; d < 100*time.Millisecond; d += 10 * time.Millisecond {
			before, err := a.Control().Commands(background, 100)
			require.NoError(c, err)
			impatient, cancel := context.WithTimeout(background, d)
			err = control.Pause(impatient, "tidy", d.String())
			cancel()
			c.pass(time.Second)
			list, lerr := a.Tasks().List(background)
			require.NoError(c, lerr)
			if list[0].Pause.Reason != d.String() {
				continue
			}
			records, lerr := a.Control().Commands(background, 100)
			require.NoError(c, lerr)
			require.Len(c, records, len(before)+1, d)
			if err != nil {
				unknown++
				require.Contains(c, records[0].Error, "it may have taken effect: ")
			}
		}
		require.NotZero(c, unknown)
		done, cancel := context.WithCancelCause(background)
		cancel(errBroken)
		require.ErrorIs(c, control.Resume(done, "tidy"), errBroken)
	})
}

// TestCommandEndInAFullRedis: a Redis that is full takes the end of a command as it takes the
// start.
func TestCommandEndInAFullRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	admin := server.Client(t)
	a, err := New(server.Client(t), Options{Namespace: "waf", InstanceID: "a", Election: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1}}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	leads, ended := make(chan struct{}), make(chan error, 1)
	var full error
	go func() {
		ended <- a.Run(ctx, func(ctx context.Context, _ Term) error {
			close(leads)
			<-ctx.Done()
			full = admin.ConfigSet(context.WithoutCancel(ctx), "maxmemory", "1mb").Err() // while the command is executed
			return nil
		})
	}()
	<-leads
	require.NoError(t, admin.Set(ctx, "ballast", make([]byte, 4<<20), 0).Err())
	require.NoError(t, a.Control().Drain(ctx, "a"))
	require.NoError(t, full)
	require.NoError(t, admin.ConfigSet(ctx, "maxmemory", "0").Err())
	stop()
	require.NoError(t, <-ended)
}

// TestCommandThatPanics is one that failed: the process goes on, and takes the next.
func TestCommandThatPanics(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		control := c.control("ops")
		obey := a.commands.obey
		a.commands.obey = func(store.Command) func(context.Context) error {
			return func(context.Context) error { panic(errBroken) }
		}
		err := control.Drain(background, "a")
		require.ErrorIs(c, err, ErrCommandFailed)
		require.ErrorContains(c, err, "panic")
		a.commands.obey = obey
		require.NoError(c, control.Undrain(background, "a"))
	})
}

// TestStandaloneControl: without Redis a coordinator commands itself.
func TestStandaloneControl(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "a"}).start()
		c.until(time.Minute, a.IsLeader)
		control := a.Control()
		require.NoError(c, control.Drain(background, "a"))
		require.True(c, a.IsDraining())
		require.NoError(c, control.Undrain(background, "a"))
		c.until(time.Minute, a.IsLeader)
		require.NoError(c, control.Resign(background, ""))
		require.ErrorIs(c, control.Drain(background, "b"), ErrNotFound)
		records, err := control.Commands(background, 10)
		require.NoError(c, err)
		require.Len(c, records, 3)
		_, err = a.stop()
		require.NoError(c, err)
	})
	inCluster(t, func(c *cluster) { // others are sent meanwhile
		a := c.alone(Options{InstanceID: "a", ShutdownTimeout: time.Hour})
		a.start(a.works("w", 20*time.Minute))
		c.until(time.Minute, a.IsLeader)
		control, drained := a.Control(), make(chan error, 2)
		go func() { drained <- control.Drain(background, "a") }()
		c.pass(15 * time.Minute)
		go func() { drained <- control.Drain(background, "a") }()
		require.NoError(c, <-drained)
		require.NoError(c, <-drained)
		_, err := a.stop()
		require.NoError(c, err)
	})
}

func TestNewControlRefuses(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	for field, opts := range map[string]ControlOptions{
		"Namespace":            {},
		"By":                   {Namespace: "x", By: "a\nb"},
		"Timeout":              {Namespace: "x", Timeout: time.Millisecond},
		"LeaderKeys.Role":      {Namespace: "x", LeaderKeys: map[string]string{"no role": "k"}},
		"LeaderKeys.LeaderKey": {Namespace: "x", LeaderKeys: map[string]string{"r": "no key"}},
	} {
		_, err := NewControl(rdb, opts)
		require.ErrorIs(t, err, ErrMisconfigured)
		require.ErrorContains(t, err, field+" = ")
	}
	_, err := NewControl(nil, ControlOptions{Namespace: "x"})
	require.ErrorIs(t, err, ErrMisconfigured)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	defer func() { _ = cluster.Close() }()
	_, err = NewControl(cluster, ControlOptions{Namespace: "x"})
	require.ErrorContains(t, err, "hash tag")
	_, err = NewControl(cluster, ControlOptions{Namespace: "{x}"})
	require.NoError(t, err)
	_, err = NewControl(cluster, ControlOptions{Namespace: "{x}", LeaderKeys: map[string]string{"r": "{x}:lock"}})
	require.NoError(t, err)
	_, err = NewControl(cluster, ControlOptions{Namespace: "{x}", LeaderKeys: map[string]string{"r": "lock"}})
	require.ErrorContains(t, err, "hash tag")
	_, err = NewControl(rdb, ControlOptions{Namespace: "x", LeaderKeys: map[string]string{"r": "x:instances"}})
	require.ErrorContains(t, err, `would share "x:instances"`)
}

// TestControlTakesNoPart: it runs no task and has no record, and says so to who gives it either.
func TestControlTakesNoPart(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	control, err := NewControl(rdb, ControlOptions{Namespace: "x"})
	require.NoError(t, err)
	task := Task{Name: "tidy", Schedule: OnDemand(), Run: func(context.Context, TaskRun) error { return nil }}
	for _, task.Anywhere = range []bool{false, true} {
		err := control.Tasks().Register(task)
		require.ErrorIs(t, err, ErrMisconfigured)
		require.ErrorContains(t, err, "with a Coordinator")
	}
	workers := 4
	err = control.Registry().Update(InstanceUpdate{WorkerCount: &workers})
	require.ErrorIs(t, err, ErrMisconfigured)
	require.ErrorContains(t, err, "of a Coordinator")
	alone, err := NewStandalone(Options{})
	require.NoError(t, err)
	require.NoError(t, alone.Control().Tasks().Register(task), "it is that of the coordinator")
	require.NoError(t, alone.Control().Registry().Update(InstanceUpdate{WorkerCount: &workers}))
}

// TestControlRules: sending is a right of its own, on a real server.
func TestControlRules(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	admin := server.Client(t)
	rules, err := ACLRules("waf")
	require.NoError(t, err)
	app := aclUser(t, server, admin, rules)
	a, err := New(app, Options{Namespace: "waf", InstanceID: "a", Election: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1}}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	leads, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- a.Run(ctx, func(ctx context.Context, _ Term) error {
			close(leads)
			<-ctx.Done()
			return nil
		})
	}()
	<-leads
	err = a.Control().Resign(ctx, "")
	require.ErrorIs(t, err, ErrMisconfigured)
	require.ErrorContains(t, err, "grant the Redis user +rpush and access to ~waf:instance:a:commands")

	rules, err = ControlRules("waf")
	require.NoError(t, err)
	args := []any{"ACL", "SETUSER", "ops", "reset", "on", ">secret"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, admin.Do(ctx, args...).Err())
	opts := server.Options()
	opts.Username, opts.Password = "ops", "secret"
	operator := redis.NewClient(opts)
	defer func() { _ = operator.Close() }()
	control, err := NewControl(operator, ControlOptions{Namespace: "waf"})
	require.NoError(t, err)
	require.NoError(t, control.Drain(ctx, "a"), "the app needs no right to take it")
	require.False(t, a.IsLeader())
	records, err := control.Commands(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, "done", records[0].State)
	for _, object := range denied(t, admin) {
		require.True(t, object == "rpush" || strings.Contains(object, "client|"), object)
	}
	stop()
	require.NoError(t, <-ended)
	_, err = ControlRules("")
	require.ErrorIs(t, err, ErrMisconfigured)
	require.Contains(t, rules, "+"+redisstore.ControlCommands[0])
}

// TestControlTriggersAtOnce: a Control that knows of a task by its record alone is heard by the
// leader that runs it, whatever its role is called.
func TestControlTriggersAtOnce(t *testing.T) {
	for _, role := range []string{"", "main"} {
		t.Run("role "+role, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.member("a", func(o *Options) { o.Election.Role = role })
				var ran atomic.Bool
				require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: OnDemand(), Run: func(context.Context, TaskRun) error { ran.Store(true); return nil }}))
				a.start()
				c.until(time.Minute, a.IsLeader)
				c.pass(time.Second)
				_, err := c.control("ops").Tasks().Trigger(background, "t")
				require.NoError(c, err)
				require.Less(c, c.until(2*time.Minute, ran.Load), time.Second)
			})
		})
	}
}

// TestControlCancelsAtOnce: likewise, and what it forgets is what the leader of that role has not
// taken over, whoever leads another one.
func TestControlCancelsAtOnce(t *testing.T) {
	for _, role := range []string{"", "main"} {
		t.Run("role "+role, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				in := func(o *Options) { o.Election.Role = role }
				a := c.member("a", in)
				require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: OnDemand(), Run: func(ctx context.Context, _ TaskRun) error {
					<-ctx.Done()
					return context.Cause(ctx)
				}}))
				a.start()
				c.until(time.Minute, a.IsLeader)
				c.pass(time.Second)
				control := c.control("ops")
				running := func() bool {
					list, err := control.Tasks().List(background)
					require.NoError(c, err)
					return list[0].Running
				}
				_, err := control.Tasks().Trigger(background, "t")
				require.NoError(c, err)
				c.until(time.Minute, running)
				require.NoError(c, control.Cancel(background, "t"))
				require.Less(c, c.until(2*time.Minute, func() bool { return !running() }), time.Second)
				_, err = a.stop()
				require.NoError(c, err)

				b := c.member("b", in).start()
				c.until(time.Minute, b.IsLeader)
				c.pass(2 * time.Second)
				require.ErrorIs(c, control.Forget(background, "t"), ErrNoLeader, "it may be about to take it over")
				c.pass(2 * time.Minute)
				require.NoError(c, control.Forget(background, "t"))
			})
		})
	}
}

// TestCommandOfADeafInstance: an instance that hears no hint takes a command at its next heartbeat:
// its subscription has died without a sign, or its user may not subscribe.
func TestCommandOfADeafInstance(t *testing.T) {
	for name, deafen := range map[string]func(c *cluster){
		"silent":        func(c *cluster) { c.net.Deafen("b") },
		"not permitted": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				if deafen == nil {
					c.redis.Intercept(func(host, cmd string, _ []string) string {
						if host == "b" && strings.EqualFold(cmd, "subscribe") {
							return "NOPERM this user has no permissions to run the 'subscribe' command"
						}
						return ""
					})
				}
				_, b := c.pair(func(o *Options) { o.Election.LeaseTTL = 2 * time.Minute })
				c.pass(5 * time.Minute)
				if deafen != nil {
					deafen(c)
				}
				began := c.now()
				require.NoError(c, c.control("ops").Drain(background, "b"))
				require.LessOrEqual(c, c.now()-began, 17*time.Second, "an interval of heartbeats, its jitter, and a look")
				require.True(c, b.IsDraining())
			})
		})
	}
}

// TestManyRolesOverASlowNetwork: several are asked for at once, and an answer that does not come
// ends the call.
func TestManyRolesOverASlowNetwork(t *testing.T) {
	inCluster(t, func(c *cluster) {
		control := c.control("ops")
		c.net.SetFaults("operator", simnet.Faults{MinLatency: 10 * time.Millisecond, MaxLatency: 10 * time.Millisecond})
		var names []string
		for i := range 300 {
			names = append(names, fmt.Sprintf("role-%03d", i))
		}
		began := c.now()
		roles, err := control.Roles(background, names...)
		require.NoError(c, err)
		require.Len(c, roles, len(names))
		for i, r := range roles {
			require.Equal(c, names[i], r.Role)
		}
		require.Less(c, c.now()-began, 3*time.Second, "one after the other they take 18")
		c.net.Partition("operator", simnet.Both, time.Hour)
		_, err = control.Roles(background, names...)
		require.ErrorIs(c, err, ErrUnreachable)
	})
}

// TestRoles: who takes no part learns which roles there are, who leads each, and why nobody does.
func TestRoles(t *testing.T) {
	inCluster(t, func(c *cluster) {
		control := c.control("ops")
		roles, err := control.Roles(background)
		require.NoError(c, err)
		require.Equal(c, []RoleStatus{{}}, roles) // the default role, of which nothing is known

		a := c.member("a")
		_, err = a.AddRole("export", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		a.start()
		c.until(time.Minute, func() bool { return len(a.leading(nil)) == 2 })
		c.pass(time.Minute) // the next heartbeat says so
		roles, err = control.Roles(background, "unheard")
		require.NoError(c, err)
		require.Len(c, roles, 3)
		require.Equal(c, RoleStatus{Role: "unheard"}, roles[2])
		for i, name := range []string{"", "export"} {
			r := roles[i]
			require.True(c, r.Led)
			require.Equal(c, name, r.Role)
			require.Equal(c, "a", r.Leader.InstanceID)
			require.Equal(c, a.Options().Election.LeaseTTL, r.LeaseTTL)
			require.InDelta(c, time.Minute, r.For, float64(3*time.Second))
		}
		c.redis.Do(func(m *miniredis.Miniredis) { m.Del(store.Keys("tenure").Log()) }) // the last entries are of other things
		known, err := control.Roles(background)
		require.NoError(c, err)
		require.Len(c, known, 2)
		require.Equal(c, "export", known[1].Role)
		_, err = control.Role(background, "a b")
		require.ErrorIs(c, err, ErrMisconfigured)

		require.NoError(c, a.Elector().Resign(background))
		r, err := control.Role(background, "")
		require.NoError(c, err)
		require.False(c, r.Led)
		require.Equal(c, "resigned", r.Last.Reason)
		require.Equal(c, "a", r.Last.InstanceID)
		require.Less(c, r.For, time.Second)
		require.Empty(c, r.Waiting) // a candidate may be granted it

		c.until(time.Minute, a.IsLeader)
		a.crash()
		c.pass(15 * time.Second)
		r, err = control.Role(background, "")
		require.NoError(c, err)
		require.False(c, r.Led)
		require.Equal(c, "lapsed", r.Last.Reason)
		require.Greater(c, r.For, time.Second)
		require.Less(c, r.For, 15*time.Second)
	})
}

// TestRoleSaysWhyNobodyLeads: each reason that the history of a lease has, and until when it holds.
func TestRoleSaysWhyNobodyLeads(t *testing.T) {
	inCluster(t, func(c *cluster) {
		control := c.control("ops")
		for _, given := range []struct {
			hash map[string]int64 // names in it that are times count from now
			heir string
			want WaitReason
			wait time.Duration
		}{
			{map[string]int64{"hold": 5000, "asked": 0}, "", WaitEmpty, 5 * time.Second},
			{map[string]int64{"hold": 5000, "token": -1, "armed": -30_000}, "", WaitHold, 5 * time.Second},
			{map[string]int64{"hold": 5000, "armed": -30_000}, "", WaitHold, 5 * time.Second},
			{map[string]int64{"token": -1, "until": 4000}, "", WaitVanished, 4 * time.Second},
			{map[string]int64{"token": -1, "until": 4000, "released": -1}, "", "", 0},
			{map[string]int64{"token": -1, "released": -1, "reserved": 2000}, "b", WaitReserved, 2 * time.Second},
			{map[string]int64{"token": -1, "released": -1, "reserved": 2000}, "", "", 0},
			{map[string]int64{"token": -1, "until": 0}, "", "", 0},
			{map[string]int64{"token": -1, "hold": -1, "released": -1}, "", "", 0},
		} {
			now := time.Now().UnixMilli()
			c.redis.Do(func(m *miniredis.Miniredis) {
				m.Del("tenure:leader:term")
				for name, n := range given.hash {
					if n < 0 {
						n = -n - now // below zero: a plain number
					}
					m.HSet("tenure:leader:term", name, strconv.FormatInt(now+n, 10))
				}
				if given.heir != "" {
					m.HSet("tenure:leader:term", "heir", given.heir)
				}
			})
			r, err := control.Role(background, "")
			require.NoError(c, err)
			require.Equal(c, given.want, r.Waiting, given)
			require.InDelta(c, given.wait, r.Wait, float64(100*time.Millisecond), given)
		}
	})
}

// TestRolesThatAreReadAreNotKept: the names of roles that somebody makes up, in requests to the
// HTTP API for instance, stay nowhere. A coordinator without Redis keeps the leases of its own
// roles.
func TestRolesThatAreReadAreNotKept(t *testing.T) {
	c, err := NewStandalone(Options{})
	require.NoError(t, err)
	_, err = c.AddRole("own", ElectionOptions{})
	require.NoError(t, err)
	c.backend.leases = func(role store.Role) store.Lease {
		require.Fail(t, "a lease is kept for "+role.Name)
		return nil
	}
	for _, role := range []string{"", "own", "made-up"} {
		status, err := c.Control().Role(t.Context(), role)
		require.NoError(t, err)
		require.False(t, status.Led)
	}
}

// TestReservedRolesAreNotRead: the keys of a role of such a name are those of the default role. Who
// asks for one must not be told that somebody leads it, nor to remove the key that has the tokens.
func TestReservedRolesAreNotRead(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // which is not asked
	defer func() { require.NoError(t, client.Close()) }()
	control, err := NewControl(client, ControlOptions{Namespace: "shop"})
	require.NoError(t, err)
	for _, role := range store.ReservedRoles {
		_, err := control.Role(t.Context(), role)
		require.ErrorIs(t, err, ErrMisconfigured)
		require.ErrorContains(t, err, "is no role")
		require.NotContains(t, err.Error(), "remove")
		_, err = control.Leader(t.Context(), role)
		require.ErrorContains(t, err, "is no role")
	}
}

// TestControlRolesOfOneThatLeadsMany: an instance says which it leads of the first ones only. The
// others are found too, also if more has happened since than a page shows.
func TestControlRolesOfOneThatLeadsMany(t *testing.T) {
	for _, prefix := range []string{"r", strings.Repeat("r", 120)} { // more names than it says, or longer ones
		inCluster(t, func(c *cluster) {
			const many = 400
			a := c.member("a")
			for i := range many {
				_, err := a.AddRole(fmt.Sprint(prefix, i), ElectionOptions{})
				require.NoError(c, err)
			}
			a.start()
			c.pass(time.Minute)
			require.Len(c, a.Roles(), many+1)
			all, err := a.Control().Roles(context.Background())
			require.NoError(c, err)
			require.Equal(c, many+1, len(all)) //nolint:testifylint // a failure need not list them
			for _, role := range all {
				require.True(c, role.Led, role.Role)
			}
			_, err = a.stop()
			require.NoError(c, err)
		})
	}
}
