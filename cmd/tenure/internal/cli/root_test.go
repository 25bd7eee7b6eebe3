package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	peer "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/settings"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

// canned is a source with one answer to each question. It notes what it was asked.
type canned struct {
	source.Source
	cluster   source.Cluster
	instances []tenure.Instance
	leader    tenure.LeaderInfo
	terms     []tenure.TermRecord
	tasks     []tenure.TaskStatus
	runs      []tenure.RunRecord
	commands  []tenure.CommandRecord
	changes   []tenure.Change
	err       error         // beside each answer
	lasts     time.Duration // what a command waits for
	end       error         // of that
	asked     []string
	looked    func() // is called with each question for the cluster; nil: it is not
}

func (c *canned) Now(context.Context) time.Time { return time.Now() }

func (c *canned) note(text string, args ...any) {
	c.asked = append(c.asked, fmt.Sprintf(text, args...))
}

func (c *canned) Ready(context.Context) error { c.note("ready"); return nil }

func (c *canned) Cluster(_ context.Context, roles ...string) (source.Cluster, error) {
	c.note("cluster %q", roles)
	c.cluster.At = time.Now()
	err := c.err
	if c.looked != nil {
		c.looked()
	}
	return c.cluster, err
}

func (c *canned) Instances(_ context.Context, states []tenure.InstanceState) ([]tenure.Instance, error) {
	c.note("instances %q", states)
	return c.instances, c.err
}

func (c *canned) Instance(_ context.Context, id string) (tenure.Instance, error) {
	c.note("instance %s", id)
	return c.instances[0], c.err
}

func (c *canned) Leader(_ context.Context, role string) (tenure.LeaderInfo, error) {
	c.note("leader %q", role)
	return c.leader, c.err
}

func (c *canned) Terms(_ context.Context, role string, limit int) ([]tenure.TermRecord, error) {
	c.note("terms %q %d", role, limit)
	return c.terms, c.err
}

func (c *canned) Tasks(_ context.Context, prefix string) ([]tenure.TaskStatus, error) {
	c.note("tasks %q", prefix)
	return slices.Clone(c.tasks), c.err
}

func (c *canned) Runs(_ context.Context, task string, limit int) ([]tenure.RunRecord, error) {
	c.note("runs %s %d", task, limit)
	return c.runs, c.err
}

func (c *canned) Commands(_ context.Context, limit int) ([]tenure.CommandRecord, error) {
	c.note("commands %d", limit)
	return c.commands, c.err
}

func (c *canned) Recent(_ context.Context, limit int) ([]tenure.Change, error) {
	c.note("recent %d", limit)
	return c.changes, c.err
}

// Follow hands out one change more, and says that something is in the way.
func (c *canned) Follow(ctx context.Context, after string, take func([]tenure.Change), say func(string)) {
	if c.note("follow %s", after); ctx.Err() != nil {
		return
	}
	take([]tenure.Change{{ID: "9-0", Type: tenure.ChangeJoined, InstanceID: "web-9"}})
	say("tenure: no \x1b answer")
}

func (c *canned) ResignTerm(ctx context.Context, role string, token int64) error {
	c.note("resign %q %d", role, token)
	return c.ends(ctx)
}

func (c *canned) TransferTerm(ctx context.Context, role string, token int64, id string) error {
	c.note("transfer %q %d %q", role, token, id)
	return c.ends(ctx)
}

// ends waits for the end of what was asked for.
func (c *canned) ends(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(c.lasts):
		return c.end
	}
}

func (c *canned) WaitFor(ctx context.Context, n int) error {
	c.note("wait for %d", n)
	return c.ends(ctx)
}

func (c *canned) Pause(ctx context.Context, task, reason string) error {
	c.note("pause %s %q", task, reason)
	return c.ends(ctx)
}

func (c *canned) Trigger(ctx context.Context, task string, args ...string) (string, error) {
	c.note("trigger %s %q", task, args)
	return "one", c.ends(ctx)
}

func (c *canned) Close() {}

// said is what a command has written, and its exit code.
type said struct {
	out, err string
	code     int
}

// ask has a source asked by a command, at the time and in the zone of a bubble of synctest, with no
// setting but the arguments.
func ask(t *testing.T, from source.Source, args ...string) said {
	t.Helper()
	return askIn(t.Context(), t, from, args...)
}

func askIn(ctx context.Context, t *testing.T, from source.Source, args ...string) said {
	t.Helper()
	t.Setenv("TENURE_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOSTNAME", "desk")
	zone := time.Local
	time.Local = time.UTC
	defer func() { time.Local = zone }()
	var o, e bytes.Buffer
	a := &app{out: &o, err: &e, source: from}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(&o)
	root.SetErr(&e)
	err := root.ExecuteContext(ctx)
	s := said{o.String(), e.String(), exitOK}
	if err != nil {
		if s.code = codeOf(err); err.Error() != "" {
			a.complain(err)
			s.err = e.String()
		}
	}
	return s
}

// TestCodesAndHints: each error of the library has its exit code and, unless it says so itself,
// what to do about it.
func TestCodesAndHints(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code int
		hint string
	}{
		{tenure.ErrUnreachable, exitCannot, "look whether Redis runs there: tenure doctor"},
		{tenure.ErrMisconfigured, exitCannot, "tenure doctor looks at rights and settings"},
		{tenure.ErrNoLeader, exitNot, "tenure status says why nobody leads"},
		{tenure.ErrNotTaken, exitNot, "look whether the instance is active: tenure instances"},
		{tenure.ErrNotReady, exitNot, "look whether the instance is active and may lead: tenure instances"},
		{tenure.ErrRegistered, exitNot, "what a program has comes back: take it out there first, and wait for a minute"},
		{tenure.ErrTriggerWaiting, exitNot, "wait for that run: tenure tasks"},
		{tenure.ErrNotLeader, exitNot, ""},
		{tenure.ErrTransferring, exitNot, ""},
		{tenure.ErrCommandFailed, exitNot, ""},
		{tenure.ErrStopped, exitNot, ""},
		{tenure.ErrDrainTimeout, exitNot, ""},
		{tenure.ErrNotFound, exitNot, ""},
		{errMaybe, exitUnknown, ""},
		{errors.New("other"), exitCannot, ""},
		{&exitError{7, "seven"}, 7, ""},
	} {
		err := fmt.Errorf("around: %w", tt.err)
		require.Equal(t, tt.code, codeOf(err), err)
		require.Equal(t, tt.hint, hintFor(err), err)
	}
}

// TestComplaint: an error is written without the name of the package and a line at a time, as it
// may be shown, and its fix once.
func TestComplaint(t *testing.T) {
	for err, want := range map[error]string{
		tenure.ErrNoLeader: "tenure: no leader\n  fix: tenure status says why nobody leads\n",
		fmt.Errorf("%w (fix: another)", tenure.ErrNoLeader): "tenure: no leader (fix: another)\n",
		fmt.Errorf("%w: %w", errMaybe, tenure.ErrStopped):   "tenure: it is not known what became of it: stopped\n",
		errors.New("one\n\ttwo\x1b"):                        "tenure: one\ntenure:   two\\x1b\n",
	} {
		var b bytes.Buffer
		(&app{err: &b}).complain(err)
		require.Equal(t, want, b.String())
	}
}

// TestRoleByTheNameInTables: the default role is found by the name that tables, and metrics, have
// for it. A variable has the role itself, as every program that reads it.
func TestRoleByTheNameInTables(t *testing.T) {
	t.Setenv("TENURE_ROLE", "default")
	from := &canned{leader: tenure.LeaderInfo{Token: 7}}
	for _, args := range [][]string{{"leader"}, {"leader", "--role", "default"}, {"leader", "-r", "role:default"}, {"terms", "--role=default"}, {"resign", "--role", "default"}} {
		ask(t, from, args...)
	}
	require.Equal(t, []string{`leader "default"`, `leader ""`, `leader "default"`, `terms "" 20`, "ready", `leader ""`, `resign "" 7`}, from.asked)
	require.Contains(t, ask(t, &canned{}, "terms", "--role", "role:default").out, "no term of role:default is known")
}

// TestFlagsAreStronger: than variables, which count without them.
func TestFlagsAreStronger(t *testing.T) {
	for name, value := range map[string]string{"TENURE_OUTPUT": "jsonl", "TENURE_ROLE": "a", "TENURE_TIMEOUT": "3s"} {
		t.Setenv(name, value)
	}
	from := &canned{}
	ask(t, from, "leader")
	ask(t, from, "leader", "--role", "b")
	require.Equal(t, []string{`leader "a"`, `leader "b"`}, from.asked)
	require.Empty(t, ask(t, from, "tasks").out)
	require.Equal(t, "[]\n", ask(t, from, "tasks", "-o", "json").out)
	require.Equal(t, "no task has run here yet\n", ask(t, from, "tasks", "-o", "").out, "as if nothing was set")

	synctest.Test(t, func(t *testing.T) {
		hangs := &hanging{asked: 1}
		for want, args := range map[time.Duration][]string{3 * time.Second: {"leader"}, 4 * time.Second: {"leader", "--timeout", "4s"}} {
			began := time.Now()
			hangs.asked = 1
			got := ask(t, hangs, args...)
			require.Equal(t, exitCannot, got.code)
			require.Contains(t, got.err, fmt.Sprintf("no answer within %v\n  fix: ", want))
			require.Equal(t, want, time.Since(began))
		}
	})
	for _, wrong := range []string{"0s", "-1s"} {
		got := ask(t, from, "tasks", "--timeout", wrong)
		require.Equal(t, exitCannot, got.code)
		require.Contains(t, got.err, "it must be a duration such as 10s")
	}
	t.Setenv("TENURE_TIMEOUT", "soon")
	require.Contains(t, ask(t, from, "tasks").err, `timeout = "soon": it must be a duration such as 10s`)
	t.Setenv("TENURE_TIMEOUT", "")
	t.Setenv("TENURE_ROLE", "a b")
	require.Equal(t, exitCannot, ask(t, from, "leader").code)
	require.Equal(t, exitOK, ask(t, from, "instances").code, "no role is meant")
}

// TestWhichInstanceIsWell: the one that is named by a flag, a variable of tenure, or the host.
func TestWhichInstanceIsWell(t *testing.T) {
	from := &canned{instances: []tenure.Instance{{State: tenure.InstanceActive}}}
	require.Equal(t, said{out: "desk is active\n"}, ask(t, from, "healthcheck"))
	t.Setenv("TENURE_INSTANCE_ID", "web-1")
	require.Equal(t, said{out: "web-1 is active\n"}, ask(t, from, "healthcheck"))
	require.Equal(t, said{out: "web-2 is active\n"}, ask(t, from, "healthcheck", "--instance", "web-2"))
	require.Equal(t, []string{"instance desk", "instance web-1", "instance web-2"}, from.asked)
	for _, state := range []tenure.InstanceState{tenure.InstanceJoining, tenure.InstanceDraining, tenure.InstanceDrifted, tenure.InstanceDown, "resting"} {
		from.instances[0].State = state
		require.Equal(t, said{out: "web-1 is " + string(state) + "\n", code: exitNot}, ask(t, from, "healthcheck"))
	}
}

// TestWhatIsNamedForRedis: the lease of LEADER_KEY is the one that is asked for, and --by is who
// asks.
func TestWhatIsNamedForRedis(t *testing.T) {
	server := miniredis.RunT(t)
	t.Setenv("TENURE_REDIS_URL", "redis://"+server.Addr())
	t.Setenv("TENURE_NAMESPACE", "shop")
	t.Setenv("TENURE_LEADER_KEY", "old:lock")
	require.NoError(t, server.Set("old:lock", "web-1"))
	require.Equal(t, said{out: "web-1\n"}, ask(t, nil, "leader"))

	server.HSet("shop:task:report", "token", "7")
	_, err := server.SetAdd("shop:tasks", "report")
	require.NoError(t, err)
	require.Equal(t, said{out: "report is paused\n"}, ask(t, nil, "task", "pause", "report", "--by", "ann"))
	t.Setenv("TENURE_BY", "bob")
	require.Equal(t, said{out: "report goes on\n"}, ask(t, nil, "task", "resume", "report"))
	require.Regexp(t, `(?s) bob +resume +report +done.* ann +pause +report +done`, ask(t, nil, "audit").out)
}

// TestStatesAreByTheTimesOfTheService: DRIFTED_AFTER and DOWN_AFTER count for each command that
// says in which state an instance is, and default to those of the library.
func TestStatesAreByTheTimesOfTheService(t *testing.T) {
	server := miniredis.RunT(t)
	t.Setenv("TENURE_REDIS_URL", "redis://"+server.Addr())
	t.Setenv("TENURE_NAMESPACE", "shop")
	t.Setenv("TENURE_HEARTBEAT_INTERVAL", "1m")
	now := time.Now()
	server.SetTime(now)
	beat := func(id string, ago time.Duration) {
		server.HSet("shop:instances", id, `{"instance_id":"`+id+`","started_at":1700000000,"last_heartbeat":1700000000,"status":"active","worker_count":1,"incarnation":"one"}`)
		_, err := server.ZAdd("shop:beats", float64(now.Add(-ago).UnixMilli()), id)
		require.NoError(t, err)
	}
	beat("web-1", 20*time.Second)
	beat("web-2", 400*time.Second)
	states := func() (states []string) {
		for _, id := range []string{"web-1", "web-2"} {
			states = append(states, strings.TrimSpace(ask(t, nil, "healthcheck", "--instance", id).out))
		}
		return states
	}
	require.Equal(t, []string{"web-1 is active", "web-2 is down"}, states())
	t.Setenv("TENURE_DRIFTED_AFTER", "10s")
	require.Equal(t, []string{"web-1 is drifted", "web-2 is down"}, states())
	t.Setenv("TENURE_DOWN_AFTER", "15s")
	require.Equal(t, []string{"web-1 is down", "web-2 is down"}, states())
	require.Contains(t, ask(t, nil, "status").out, "2 down")
	require.Contains(t, ask(t, nil, "instances", "--state", "down").out, "web-1")

	t.Setenv("TENURE_DRIFTED_AFTER", "10m")
	t.Setenv("TENURE_DOWN_AFTER", "20m")
	require.Equal(t, []string{"web-1 is active", "web-2 is active"}, states())
	require.Contains(t, ask(t, nil, "status").out, "instances 2 active")
	require.Equal(t, exitOK, ask(t, nil, "wait", "instances", "2", "--for", "10s").code)
	t.Setenv("TENURE_LEADER_KEY", "old:lock")
	require.NoError(t, server.Set("old:lock", "web-1"))
	require.Equal(t, said{out: "web-1\n"}, ask(t, nil, "leader"))
	require.Equal(t, exitOK, ask(t, nil, "status").code)

	t.Setenv("TENURE_DOWN_AFTER", "5m")
	wrong := ask(t, nil, "status")
	require.Equal(t, exitCannot, wrong.code)
	require.Contains(t, wrong.err, "DownAfter = 5m0s: must be above DriftedAfter = 10m0s")
}

// TestTimeoutIsForRedisToo: a command waits for an answer for as long as --timeout says, and not
// for a tenth of the lease of the service, as a program that takes part must. doctor has the client
// of the service, at which it looks.
func TestTimeoutIsForRedisToo(t *testing.T) {
	server := miniredis.RunT(t)
	server.Server().SetPreHook(func(*peer.Peer, string, ...string) bool {
		time.Sleep(50 * time.Millisecond) // five times as long as that tenth
		return false
	})
	t.Setenv("TENURE_REDIS_URL", "redis://"+server.Addr()+"?protocol=2")
	t.Setenv("TENURE_NAMESPACE", "shop")
	t.Setenv("TENURE_LEASE_TTL", "100ms")
	t.Setenv("TENURE_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	looks := &app{out: io.Discard, err: io.Discard}
	root := looks.root()
	root.SetArgs([]string{"leader", "--timeout", "1m"})
	require.ErrorIs(t, root.ExecuteContext(t.Context()), tenure.ErrNoLeader)
	looks.close()

	read := func(use string) time.Duration {
		set, err := settings.Load("")
		require.NoError(t, err)
		a := &app{settings: set}
		a.flags.timeout = time.Minute
		from, err := a.connectRedis(use)
		require.NoError(t, err)
		defer a.close()
		if cluster, is := from.Client.(*redis.ClusterClient); is {
			return cluster.Options().ReadTimeout
		}
		return from.Client.(*redis.Client).Options().ReadTimeout
	}
	require.Equal(t, time.Minute, read(""))
	require.Equal(t, 10*time.Millisecond, read("doctor"))
	t.Setenv("TENURE_REDIS_CLUSTER", "true")
	t.Setenv("TENURE_REDIS_URL", "redis://"+server.Addr())
	t.Setenv("TENURE_NAMESPACE", "{shop}")
	require.Equal(t, time.Minute, read(""))
}

// TestInterruptOfAQuestion: who interrupts a command does not wait until the client gives up a
// Redis that hangs.
func TestInterruptOfAQuestion(t *testing.T) {
	hangs, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hangs.Close()
	t.Setenv("TENURE_REDIS_URL", "redis://"+hangs.Addr().String())
	t.Setenv("TENURE_NAMESPACE", "shop")
	t.Setenv("TENURE_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if connection, err := hangs.Accept(); err == nil {
			defer connection.Close()
			_, _ = connection.Read(make([]byte, 1)) // it is asked
			cancel()
			<-t.Context().Done()
		}
	}()
	ended := make(chan error, 1)
	go func() {
		a := &app{out: io.Discard, err: io.Discard}
		root := a.root()
		root.SetArgs([]string{"status", "--timeout", "1h"})
		ended <- root.ExecuteContext(ctx)
	}()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		t.Fatal("it goes on to wait")
	}
}
