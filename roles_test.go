package tenure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/driver"
	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

// TestP1P2_ManyRolesUnderFaults: two processes with so many roles that their renewals travel
// together, under drawn faults: no role is led twice at a time, a later term has a greater token,
// and in the calm each has a leader.
func TestP1P2_ManyRolesUnderFaults(t *testing.T) {
	const roles = driver.Few + 8
	for seed := range uint64(4) {
		if (testing.Short() || simnet.Race) && seed > 0 {
			break
		}
		inCluster(t, func(c *cluster) {
			r := rand.New(rand.NewPCG(seed, 7))
			within := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
			together := 0 // renewals by a call for many
			c.redis.Intercept(func(_, cmd string, args []string) string {
				if strings.EqualFold(cmd, "evalsha") {
					if keys, _ := strconv.Atoi(args[1]); keys > 5 && keys%3 == 0 && strings.HasSuffix(args[1+keys], ":term") {
						together += keys / 3
					}
				}
				return ""
			})
			for _, name := range []string{"a", "b"} {
				m := c.member(name)
				for i := range roles - 1 {
					_, err := m.AddRole(fmt.Sprint("role-", i), ElectionOptions{LeaseTTL: 10 * time.Second})
					require.NoError(c, err)
				}
				m.start()
			}
			role := func(m *instance) *Elector { return m.Roles()[r.IntN(roles)] }
			last := make([]int64, roles)
			look := func() (led int) {
				for i := range roles {
					leads := 0
					for _, m := range c.members {
						term, leading := m.Roles()[i].Term()
						if !leading {
							continue
						}
						leads++
						require.GreaterOrEqual(c, term.Token, last[i], "seed %d: role %d of %s", seed, i, m.name)
						last[i] = term.Token
					}
					require.LessOrEqual(c, leads, 1, "seed %d: role %d", seed, i)
					led += leads
				}
				return led
			}
			watch := func(d time.Duration) {
				for range d / (20 * time.Millisecond) {
					c.pass(20 * time.Millisecond)
					look()
				}
			}
			for range 60 {
				m := c.members[r.IntN(2)]
				switch r.IntN(9) {
				case 0, 1:
					c.net.Partition(m.name, simnet.Way(1+r.IntN(3)), within(15*time.Second))
				case 2:
					c.net.SetFaults(m.name, simnet.Faults{
						DelayRequest: r.Float64() / 4, DelayReply: r.Float64() / 4, DelayMin: time.Millisecond, DelayMax: time.Millisecond + within(12*time.Second),
						LoseRequest: r.Float64() / 10, LoseReply: r.Float64() / 10, Cut: r.Float64() / 10, Dribble: r.Float64() / 4,
						Tear: r.Float64() / 20, Duplicate: r.Float64() / 4, DuplicateWithin: within(12 * time.Second),
					})
				case 3:
					c.redis.ScriptFlush()
				case 4:
					c.redis.Pause(within(4 * time.Second))
				case 5:
					c.redis.Restart(true, within(8*time.Second))
				case 6:
					ctx, cancel := context.WithCancel(c.Context())
					cancel()
					_ = role(m).Resign(ctx) // asks, and does not wait
				case 7:
					c.redis.Del(role(m).loop.opts.leaseKey(m.opts.Namespace))
				case 8:
					role(m).SetEligible(r.IntN(2) == 0)
				}
				watch(within(6 * time.Second))
			}
			c.net.Heal("")
			c.net.SetFaults("", simnet.Faults{})
			for _, m := range c.members {
				for _, e := range m.Roles() {
					e.SetEligible(true)
				}
			}
			watch(40 * time.Second)
			require.Equal(c, roles, look(), "seed %d: in the calm", seed)
			require.Greater(c, together, 10*roles)
		})
	}
}

// toldLease answers as it is told to.
type toldLease struct {
	store.Lease
	leader   store.LeaseReply
	vacancy  store.Vacancy
	terms    []store.TermEntry
	fails    error  // of the question
	at       string // with this name
	entries  int    // that were asked for
	vacantAt int64  // Redis's clock
	forget   func(token int64) lease.Verdict
}

func (l *toldLease) ForgetTerms(_ context.Context, token int64) (store.LeaseReply, error) {
	return store.LeaseReply{Answer: lease.Answer{Verdict: l.forget(token)}}, nil
}

func (l *toldLease) failure(at string) error {
	if l.at == at {
		return l.fails
	}
	return nil
}

func (l *toldLease) Leader(context.Context) (store.LeaseReply, error) {
	l.leader.Now = l.vacantAt
	return l.leader, l.failure("leader")
}

func (l *toldLease) Vacancy(context.Context) (store.Vacancy, error) {
	return l.vacancy, l.failure("vacancy")
}

func (l *toldLease) Terms(_ context.Context, entries int) ([]store.TermEntry, error) {
	l.entries = entries
	return l.terms, l.failure("terms")
}

// onLease is a Control of roles whose leases answer so.
func onLease(t *testing.T, leases func(role string) *toldLease) *Control {
	t.Helper()
	c, err := NewStandalone(Options{})
	require.NoError(t, err)
	control := c.Control()
	control.leases = func(role string) store.Lease { return leases(role) }
	return control
}

// TestRoleByTheClockOfRedis: what holds the lease back does so until its time, and not at it. What
// is not known of a leader or of a last term is not made up.
func TestRoleByTheClockOfRedis(t *testing.T) {
	const now = int64(1_795_299_829_000)
	for name, v := range map[string]struct {
		vacancy func(at int64) store.Vacancy
		want    WaitReason
	}{
		"empty":    {func(at int64) store.Vacancy { return store.Vacancy{Hold: at, Released: true} }, WaitEmpty},
		"hold":     {func(at int64) store.Vacancy { return store.Vacancy{Hold: at, Token: 7, Released: true} }, WaitHold},
		"armed":    {func(at int64) store.Vacancy { return store.Vacancy{Hold: at, Armed: 1, Released: true} }, WaitHold},
		"vanished": {func(at int64) store.Vacancy { return store.Vacancy{Until: at, Token: 7} }, WaitVanished},
		"reserved": {func(at int64) store.Vacancy { return store.Vacancy{Reserved: at, Heir: "b", Released: true, Token: 7} }, WaitReserved},
	} {
		for ahead, want := range map[int64]WaitReason{1: v.want, 0: "", -1: ""} {
			of := v.vacancy(now + ahead)
			of.TTL = 10_000
			role, err := onLease(t, func(string) *toldLease { return &toldLease{vacancy: of, vacantAt: now} }).Role(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, RoleStatus{LeaseTTL: 10 * time.Second, Waiting: want, Wait: time.Duration(max(ahead, 0)) * time.Millisecond}, role, "%s %d", name, ahead)
		}
	}

	held := func(since int64) store.LeaseReply {
		return store.LeaseReply{Holder: "a", Answer: lease.Answer{Verdict: lease.Held, Token: 7, Since: since}}
	}
	for since, want := range map[int64]time.Duration{now/1000 - 5: 5 * time.Second, now / 1000: 0, now/1000 + 60: 0, 0: 0} {
		role, err := onLease(t, func(string) *toldLease { return &toldLease{leader: held(since), vacantAt: now} }).Role(t.Context(), "")
		require.NoError(t, err)
		require.True(t, role.Led)
		require.Equal(t, want, role.For, since)
	}
}

// TestLastTermOfARole: one that was not given back has ended with its lease, if that is what Redis
// knows of this very term. How long nobody has led is never below zero.
func TestLastTermOfARole(t *testing.T) {
	const now, ended = int64(1_795_299_829_000), int64(1_795_299_824_000)
	began := store.TermEntry{Event: store.TermBegan, Token: 7, Holder: "a", At: ended - 60_000}
	for name, given := range map[string]struct {
		vacancy store.Vacancy
		ended   int64 // by the history; 0: it does not say
		want    int64 // 0: not known
		since   time.Duration
	}{
		"lapsed":               {vacancy: store.Vacancy{Token: 7, Until: ended}, want: ended, since: 5 * time.Second},
		"lapsed now":           {vacancy: store.Vacancy{Token: 7, Until: now}, want: now},
		"vanished":             {vacancy: store.Vacancy{Token: 7, Until: now + 1}},
		"given back":           {vacancy: store.Vacancy{Token: 7, Until: ended, Released: true}},
		"of another term":      {vacancy: store.Vacancy{Token: 8, Until: ended}},
		"not known until when": {vacancy: store.Vacancy{Token: 7}},
		"the first instant":    {vacancy: store.Vacancy{Token: 7, Until: 1}, want: 1, since: time.Duration(now-1) * time.Millisecond},
		"written":              {vacancy: store.Vacancy{Token: 7, Until: now}, ended: ended, want: ended, since: 5 * time.Second},
		"of a later clock":     {ended: now + 60_000, want: now + 60_000},
	} {
		entries := []store.TermEntry{began}
		if given.ended != 0 {
			entries = []store.TermEntry{{Event: store.TermEnded, Token: 7, Holder: "a", At: given.ended, Reason: "resigned"}, began}
		}
		l := &toldLease{vacancy: given.vacancy, terms: entries, vacantAt: now}
		role, err := onLease(t, func(string) *toldLease { return l }).Role(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, int64(7), role.Last.Token)
		require.Equal(t, store.Time(given.want), role.Last.Ended, name)
		require.Equal(t, given.want == 0, role.Last.Reason == "", name)
		require.Equal(t, given.since, role.For, name)
		require.Equal(t, 3, l.entries, "no more than the last term takes")
	}
	role, err := onLease(t, func(string) *toldLease { return &toldLease{vacantAt: now} }).Role(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, RoleStatus{}, role)
}

// TestRolesThatCannotBeRead: whichever question fails, its error comes back, and nothing is taken
// for an answer.
func TestRolesThatCannotBeRead(t *testing.T) {
	fails := errors.New("no answer")
	for _, at := range []string{"leader", "vacancy", "terms"} {
		control := onLease(t, func(string) *toldLease { return &toldLease{fails: fails, at: at} })
		_, err := control.Role(t.Context(), "")
		require.ErrorIs(t, err, fails, at)
		roles, err := control.Roles(t.Context())
		require.ErrorIs(t, err, fails, at)
		require.Empty(t, roles)
	}
	for _, at := range []string{"scan", "log", "tasks"} {
		control := onLease(t, func(string) *toldLease { return &toldLease{} })
		control.registry.store = &namedRoles{Registry: control.registry.store, fails: fails, at: at}
		control.tasks.store = &namedTasks{Tasks: control.tasks.store, fails: fails, at: at}
		roles, err := control.Roles(t.Context())
		require.ErrorIs(t, err, fails, at)
		require.Empty(t, roles)
	}
}

// namedRoles is a registry with these instances and this log.
type namedRoles struct {
	store.Registry
	leading []string // the role of each instance
	next    string   // cursor behind them
	log     []store.LogEntry
	fails   error  // of the question
	at      string // with this name
}

func (r *namedRoles) Scan(context.Context, string, bool) (store.ScanReply, error) {
	reply := store.ScanReply{Next: r.next}
	for i, role := range r.leading {
		reply.Entries = append(reply.Entries, store.Entry{ID: fmt.Sprint("i", i), Record: fmt.Sprintf(`{"instance_id":"i%d","started_at":1,"leading":[%q]}`, i, role)})
	}
	if r.at == "scan" {
		return reply, r.fails
	}
	return reply, nil
}

func (r *namedRoles) LogTail(_ context.Context, limit int) ([]store.LogEntry, error) {
	if r.at == "log" {
		return nil, r.fails
	}
	return r.log[max(0, len(r.log)-limit):], nil
}

// namedTasks are tasks of which each has a role of its own.
type namedTasks struct {
	store.Tasks
	names int
	fails error  // of the question
	at    string // with this name
}

func (s *namedTasks) Names(_ context.Context, limit int) (names []string, more bool, err error) {
	for i := range min(s.names, limit) {
		names = append(names, fmt.Sprintf("task-%04d", i))
	}
	if s.at == "tasks" {
		err = s.fails
	}
	return names, s.names > limit, err
}

func (s *namedTasks) Records(_ context.Context, names []string) (now int64, records []store.TaskRecord, problems []error, err error) {
	records, problems = make([]store.TaskRecord, len(names)), make([]error, len(names))
	for i, name := range names {
		records[i].Lease = store.Keys(localNamespace).Lease("") + ":of-" + name
	}
	return 1, records, problems, nil
}

// TestRolesOfAll: the roles of every instance, of the log and of the tasks, each once. Those of
// which nothing is known are not there, unless they were asked for. If a listing was cut, what is
// there counts, and the whole log says who else has led.
func TestRolesOfAll(t *testing.T) {
	asked := map[string]int{}
	leases := func(role string) *toldLease {
		switch role {
		case "led":
			return &toldLease{leader: store.LeaseReply{Holder: "i0", Answer: lease.Answer{Verdict: lease.Held}}}
		case "awaited":
			return &toldLease{vacancy: store.Vacancy{Hold: 5}}
		case "past", "of-task-0000", "early":
			return &toldLease{terms: []store.TermEntry{{Event: store.TermBegan, Token: 1, Holder: "i0", At: 1}}}
		}
		return &toldLease{}
	}
	var names []string
	look := func(registry *namedRoles, tasks int, also ...string) []string {
		control := onLease(t, leases)
		of := control.leases
		clear(asked)
		var mu sync.Mutex
		control.leases = func(role string) store.Lease {
			mu.Lock()
			defer mu.Unlock()
			asked[role]++
			return of(role)
		}
		registry.Registry = control.registry.store
		control.registry.store, control.tasks.store = registry, &namedTasks{Tasks: control.tasks.store, names: tasks}
		roles, err := control.Roles(t.Context(), also...)
		require.NoError(t, err)
		names = nil
		for _, r := range roles {
			names = append(names, r.Role)
		}
		for role, n := range asked {
			require.Equal(t, 1, n, role)
		}
		return names
	}
	elected := func(role string) store.LogEntry {
		return store.LogEntry{ID: "1-0", Event: string(ChangeElected), Instances: []string{"i0"}, Role: role}
	}
	log := []store.LogEntry{elected("early")}
	for range 200 {
		log = append(log, elected("past"))
	}
	require.Equal(t, []string{""}, look(&namedRoles{next: "0"}, 0), "of the default one nothing is known, but there is no other")
	require.Equal(t, []string{"awaited", "led", "past"}, look(&namedRoles{next: "0", leading: []string{"led", "awaited", "nobody"}, log: log}, 0))
	require.Equal(t, []string{"", "nobody", "past"}, look(&namedRoles{next: "0", log: log}, 0, "nobody", "", "nobody"))
	require.Equal(t, []string{"of-task-0000"}, look(&namedRoles{next: "0"}, 1))
	require.Equal(t, []string{"of-task-0000"}, look(&namedRoles{next: "0"}, maxTasks+1), "there are more tasks than are listed")
	require.Equal(t, []string{"early", "led", "past"}, look(&namedRoles{next: "7", leading: []string{"led"}, log: log}, 0), "there are more instances than are listed")
}

// TestForgetRole: a role that a deploy has taken out is listed until somebody forgets it, with its
// tasks; not one that is led, or was a moment ago. The tokens of one that comes back go on.
func TestForgetRole(t *testing.T) {
	inCluster(t, func(c *cluster) {
		ctx := context.Background()
		export := func(m *instance) *Elector {
			e, err := m.AddRole("export", ElectionOptions{})
			require.NoError(c, err)
			task := m.counts("rows", Every(10*time.Minute))
			task.Role = "export"
			require.NoError(c, m.Tasks().Register(task))
			require.NoError(c, m.Tasks().Register(m.counts("kept", Every(10*time.Minute))))
			return e
		}
		a := c.member("a")
		before := export(a)
		a.start()
		c.pass(21 * time.Minute)
		old, leads := before.Term()
		require.True(c, leads)
		control := c.control("ops")
		listed := func() (roles, tasks []string) {
			all, err := control.Roles(ctx)
			require.NoError(c, err)
			for _, r := range all {
				roles = append(roles, r.Role)
			}
			list, err := control.Tasks().List(ctx)
			require.NoError(c, err)
			for _, t := range list {
				tasks = append(tasks, t.Name)
			}
			return roles, tasks
		}
		stays := func(of *Control, text string) {
			err := of.ForgetRole(ctx, "export")
			require.ErrorIs(c, err, ErrRegistered)
			require.ErrorContains(c, err, text)
			roles, tasks := listed()
			require.Equal(c, []string{"", "export"}, roles)
			require.Equal(c, []string{"kept", "rows"}, tasks)
		}
		stays(control, `role "export", which instance "a" leads`)
		stays(a.Control(), "by this process")
		require.ErrorIs(c, control.ForgetRole(ctx, ""), ErrRegistered)
		require.ErrorIs(c, control.ForgetRole(ctx, "none"), ErrNotFound)
		require.ErrorIs(c, control.ForgetRole(ctx, "term"), ErrMisconfigured)
		_, err := a.stop()
		require.NoError(c, err)
		b := c.member("b")
		require.NoError(c, b.Tasks().Register(b.counts("kept", Every(10*time.Minute))))
		b.start()
		c.pass(50 * time.Second)
		stays(control, "less than 1m0s ago")
		c.pass(20 * time.Second)

		require.ErrorIs(c, control.Forget(ctx, "rows"), ErrNoLeader, "nobody would know")
		require.NoError(c, control.ForgetRole(ctx, "export"))
		roles, tasks := listed()
		require.Equal(c, []string{""}, roles)
		require.Equal(c, []string{"kept"}, tasks)
		require.ErrorIs(c, b.Control().ForgetRole(ctx, "export"), ErrNotFound)
		commands, err := control.Commands(ctx, 1)
		require.NoError(c, err)
		require.Equal(c, CommandRecord{
			ID: commands[0].ID, Kind: "forget", Role: "export", By: "b", Asked: commands[0].Asked, Ended: commands[0].Ended, State: "failed", Error: commands[0].Error, Code: "not_found",
		}, commands[0])

		d := c.member("d")
		after := export(d)
		d.start()
		c.pass(time.Minute)
		term, leads := after.Term()
		require.True(c, leads)
		require.Greater(c, term.Token, old.Token)
		terms, err := control.Terms(ctx, "export", 10)
		require.NoError(c, err)
		require.Len(c, terms, 1)
	})
}

// TestForgetRoleThatComesBack: somebody leads it again while it is being forgotten.
func TestForgetRoleThatComesBack(t *testing.T) {
	for verdict, is := range map[lease.Verdict]error{lease.Done: nil, lease.Held: ErrRegistered, lease.Stale: ErrRegistered} {
		var asked int64
		control := onLease(t, func(string) *toldLease {
			return &toldLease{terms: []store.TermEntry{{Event: store.TermBegan, Token: 7, Holder: "i0", At: 1}}, forget: func(token int64) lease.Verdict {
				asked = token
				return verdict
			}}
		})
		control.tasks.store = &namedTasks{Tasks: control.tasks.store}
		require.ErrorIs(t, control.ForgetRole(t.Context(), "export"), is)
		require.EqualValues(t, 7, asked)
	}
}

// TestDone: a role is done only if nobody leads it, and Redis does not keep it back for a later
// term.
func TestDone(t *testing.T) {
	done := TermRecord{Token: 7, Reason: store.TermDone}
	require.True(t, RoleStatus{Last: done}.Done())
	require.False(t, RoleStatus{}.Done(), "never led")
	require.False(t, RoleStatus{Last: TermRecord{Token: 7, Reason: store.TermLapsed}}.Done())
	require.False(t, RoleStatus{Last: done, Led: true, Leader: LeaderInfo{Token: 8}}.Done(), "its work goes on")
	require.False(t, RoleStatus{Last: done, Waiting: WaitVanished}.Done(), "the lease of a later term is gone")
}
