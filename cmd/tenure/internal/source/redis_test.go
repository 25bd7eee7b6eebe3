package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestFollowOfALogThatIsGone: that changes may be missing is said once, also if the log stays empty
// for long, and what changes then is heard of.
func TestFollowOfALogThatIsGone(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: "shop", By: "test"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var said []string
	taken := make(chan []tenure.Change, 10)
	var following sync.WaitGroup
	following.Go(func() { // ends with ctx; awaited below
		r := &Redis{Control: control, Client: client, Timeout: time.Minute}
		r.Follow(ctx, "1700000000000-0", func(changes []tenure.Change) { taken <- changes }, func(problem string) { said = append(said, problem) })
	})
	<-time.After(3*lookInterval + lookInterval/2) // so that it looks several times
	require.NoError(t, client.XAdd(ctx, &redis.XAddArgs{
		Stream: "shop:log", ID: "1700000000001-0", Values: []string{"event", "joined", "instances", "web-1"},
	}).Err())
	select {
	case changes := <-taken:
		require.Equal(t, "1700000000001-0", changes[0].ID)
	case <-ctx.Done():
		t.Error("it hears of nothing")
	}
	cancel()
	following.Wait()
	require.Equal(t, []string{missing}, said)
}

// TestNowIsByRedis: tasks are due by Redis's clock. One that does not say it is taken for right.
func TestNowIsByRedis(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer func() { _ = client.Close() }()
	r := &Redis{Client: client, Namespace: "shop"}
	ahead := time.Now().Add(time.Hour)
	server.SetTime(ahead)
	require.WithinDuration(t, ahead, r.Now(t.Context()), time.Millisecond)
	server.SetError("NOPERM this user has no permissions to run the 'time' command")
	require.WithinDuration(t, time.Now(), r.Now(t.Context()), 30*time.Minute)
}

// TestRoleOfWorkThatIsDone: nobody has to lead what tenure.Once has done. It is there by its name.
func TestRoleOfWorkThatIsDone(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer func() { _ = client.Close() }()
	_, err := tenure.Once(t.Context(), client, tenure.ElectorOptions{
		Namespace: "shop", Election: tenure.ElectionOptions{Role: "migration", Safety: tenure.SafetyOptions{EmptyHistoryWait: -1, RestartGuard: -1}},
	}, func(context.Context, tenure.Term) error { return nil })
	require.NoError(t, err)
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: "shop"})
	require.NoError(t, err)
	r := &Redis{Control: control, Client: client, Timeout: time.Minute}
	c, err := r.Cluster(t.Context())
	require.NoError(t, err)
	require.Empty(t, c.Roles)
	c, err = r.Cluster(t.Context(), "migration")
	require.NoError(t, err)
	require.Len(t, c.Roles, 1)
	require.Equal(t, "done", c.Roles[0].Last.Reason)
}

// TestClusterListsOnce: the roles are found in what was listed anyway. Instances and tasks are
// listed once, however many there are.
func TestClusterListsOnce(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: "shop", By: "test"})
	require.NoError(t, err)
	entry := func(role string) []string {
		return []string{"event", "elected", "instances", "web-0", "role", role, "token", "7"}
	}
	stays := func(role string) {
		require.NoError(t, server.Set("shop:leader:"+role, "web-0"))
		server.SetTTL("shop:leader:"+role, time.Hour)
	}
	roles := []string{"of-a-task", "of-an-instance", "of-the-log"}
	for _, role := range append(slices.Clone(roles), "of-the-old-log") {
		stays(role)
	}
	leads := `"of-an-instance","since"`
	record := func(leads string) string {
		return `{"instance_id":"web-0","started_at":1700000000,"last_heartbeat":1700000000,"status":"active","worker_count":1,"incarnation":"one","leading":[` + leads + `]}`
	}
	server.HSet("shop:instances", "web-0", record(leads))
	server.HSet("shop:task:invoices", "lease", "shop:leader:of-a-task")
	_, err = server.SetAdd("shop:tasks", "invoices")
	require.NoError(t, err)
	for i := range 300 {
		fields := []string{"event", "active", "instances", "web-0"}
		switch i {
		case 0:
			fields = entry("of-the-old-log")
		case 200:
			fields = entry("of-the-log")
		}
		_, err = server.XAdd("shop:log", fmt.Sprint(1700000000001+i, "-0"), fields)
		require.NoError(t, err)
	}
	from := &Redis{Control: control, Client: client, Timeout: time.Minute}
	_, err = from.Cluster(t.Context()) // the server knows the scripts from here on
	require.NoError(t, err)
	calls := &callCounter{}
	client.AddHook(calls)
	look := func() (names []string) {
		calls.of = make(map[string]int)
		c, err := from.Cluster(t.Context())
		require.NoError(t, err)
		for _, r := range c.Roles {
			require.True(t, r.Led, r.Role)
			names = append(names, r.Role)
		}
		require.Empty(t, c.Unread)
		require.Len(t, c.Instances, 1)
		require.Len(t, c.Tasks, 1)
		require.Len(t, c.Recent, recentShown)
		require.Equal(t, "1700000000300-0", c.Recent[recentShown-1].ID)
		for _, key := range []string{"shop:instances", "shop:tasks", "shop:log"} {
			require.Equal(t, 1, calls.of[key], key)
		}
		return names
	}
	require.Equal(t, roles, look())

	server.HSet("shop:instances", "web-0", record(leads+strings.Repeat(`,"of-an-instance"`, 62))) // it may lead others
	require.Equal(t, append(roles, "of-the-old-log"), look())
}

// callCounter counts the calls that name a key.
type callCounter struct {
	mu sync.Mutex
	of map[string]int
}

func (*callCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *callCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *callCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

func (c *callCounter) count(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			c.of[fmt.Sprint(arg)]++
		}
	}
}

// TestManyTasks: all are listed, or those of a prefix. The state of the cluster has 1,000 of them,
// and says how the others are seen.
func TestManyTasks(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: "shop", By: "test"})
	require.NoError(t, err)
	const many = 5003
	for i := range many {
		_, err := server.SetAdd("shop:tasks", fmt.Sprintf("t%04d", i))
		require.NoError(t, err)
	}
	from := &Redis{Control: control, Client: client, Timeout: time.Minute}
	tasks, err := from.Tasks(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, tasks, many)
	require.Equal(t, "t5002", tasks[many-1].Name)
	tasks, err = from.Tasks(t.Context(), "t50")
	require.NoError(t, err)
	require.Equal(t, []string{"t5000", "t5001", "t5002"}, []string{tasks[0].Name, tasks[1].Name, tasks[2].Name})
	c, err := from.Cluster(t.Context())
	require.Len(t, c.Tasks, 1000)
	require.ErrorIs(t, err, tenure.ErrTruncated)
	require.ErrorContains(t, err, "(fix: tenure tasks lists all)")
}

// shop returns a source on a server of its own, and the server.
func shop(t *testing.T) (*Redis, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	return sourceOf(t, redis.NewClient(&redis.Options{Addr: server.Addr()}), "shop"), server
}

// sourceOf returns a source that asks by a client, which is closed with the test.
func sourceOf(t *testing.T, client redis.UniversalClient, namespace string) *Redis {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: namespace, By: "test"})
	require.NoError(t, err)
	return &Redis{Control: control, Client: client, Namespace: namespace, Timeout: time.Minute}
}

// TestRolesThatAreShown: those of which something is known, those that are asked for, and the
// default one if there is no other.
func TestRolesThatAreShown(t *testing.T) {
	from, server := shop(t)
	shown := func(roles ...string) (names []string) {
		c, err := from.Cluster(t.Context(), roles...)
		require.NoError(t, err)
		for _, r := range c.Roles {
			names = append(names, r.Role)
		}
		return names
	}
	require.Equal(t, []string{""}, shown())
	server.HSet("shop:task:invoices", "lease", "shop:leader:heard")
	_, err := server.SetAdd("shop:tasks", "invoices")
	require.NoError(t, err)
	require.Empty(t, shown(), "neither of them was ever led")
	require.Equal(t, []string{"asked"}, shown("asked"))
	_, err = server.XAdd("shop:leader:heard:terms", "1000-0", []string{"event", "began", "token", "7", "holder", "web-1", "at", "1000"})
	require.NoError(t, err)
	require.Equal(t, []string{"heard"}, shown(), "nobody leads it any more")
	server.Del("shop:leader:heard:terms")
	server.HSet("shop:leader:heard:term", "token", "7", "hold", "99999999999999")
	require.Equal(t, []string{"heard"}, shown(), "nobody may lead it yet")
	require.NoError(t, server.Set("shop:leader", "web-1"))
	require.Equal(t, []string{"", "heard"}, shown("heard"))
}

// TestWhatCannotBeReadOfRedis: what there is beside a key of something else is there; without any
// part it is an error.
func TestWhatCannotBeReadOfRedis(t *testing.T) {
	from, server := shop(t)
	require.NoError(t, server.Set("shop:leader", "web-1"))
	require.NoError(t, server.Set("shop:tasks", "mine"))
	c, err := from.Cluster(t.Context())
	require.NoError(t, err)
	require.Len(t, c.Roles, 1)
	require.Len(t, c.Unread, 1)
	require.Regexp(t, `^tasks: .*the key shop:tasks belongs to something else`, c.Unread[0])
	_, err = from.Tasks(t.Context(), "")
	require.ErrorIs(t, err, tenure.ErrMisconfigured)

	server.Del("shop:tasks")
	server.HSet("shop:leader:sick", "a", "b")
	c, err = from.Cluster(t.Context(), "sick")
	require.NoError(t, err)
	require.Len(t, c.Roles, 1, "it is not said that nobody leads it")
	require.Len(t, c.Unread, 1)
	require.Regexp(t, `^role sick: .*the key shop:leader:sick belongs to something else`, c.Unread[0])

	for _, key := range []string{"shop:instances", "shop:tasks", "shop:log"} {
		require.NoError(t, server.Set(key, "mine"))
	}
	_, err = from.Cluster(t.Context())
	require.ErrorIs(t, err, tenure.ErrMisconfigured)
}

// TestWhereTheLeaderIs: its address stands in its record. Of another program that holds the lease
// there is none.
func TestWhereTheLeaderIs(t *testing.T) {
	from, server := shop(t)
	server.HSet("shop:instances", "web-1", `{"instance_id":"web-1","started_at":1700000000,"last_heartbeat":1700000000,"status":"active","worker_count":1,"incarnation":"one","address":"web-1:80"}`)
	require.NoError(t, server.Set("shop:leader", "web-1"))
	shown := func() string { // by tenure status
		c, err := from.Cluster(t.Context())
		require.NoError(t, err)
		require.Len(t, c.Roles, 1)
		return c.Roles[0].Leader.Address
	}
	leader, err := from.Leader(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, shown())
	require.Equal(t, tenure.LeaderInfo{InstanceID: "web-1", Remaining: leader.Remaining}, leader, "it may have its name by chance")
	server.HSet("shop:leader:term", "token", "7", "nonce", "n", "holder", "web-1", "until", "99999999999999", "ttl", "30000")
	leader, err = from.Leader(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "web-1:80", leader.Address)
	require.Equal(t, "web-1:80", shown(), "as over the API")
	require.NoError(t, server.Set("shop:leader", "web-2"))
	leader, err = from.Leader(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, leader.Address)
	require.Empty(t, shown())
}

// TestReadyIsOfTheLibrarysWords: what is wrong with Redis is classed as everywhere, whatever the
// first question was.
func TestReadyIsOfTheLibrarysWords(t *testing.T) {
	from, server := shop(t)
	require.NoError(t, from.Ready(t.Context()))
	server.SetError("NOPERM this user has no permissions")
	require.ErrorIs(t, from.Ready(t.Context()), tenure.ErrMisconfigured)
	server.SetError("LOADING Redis is loading the dataset in memory")
	require.ErrorIs(t, from.Ready(t.Context()), tenure.ErrUnreachable)
}

// TestReadyIsTheMasterOfTheKeys: in a cluster it does not help that other masters answer.
func TestReadyIsTheMasterOfTheKeys(t *testing.T) {
	ours, other := miniredis.RunT(t), miniredis.RunT(t)
	from := sourceOf(t, redis.NewClusterClient(clusterOf(ours, other)), "{shop}")
	require.NoError(t, from.Ready(t.Context()))
	ours.SetError("LOADING Redis is loading the dataset in memory")
	for range 10 { // whichever is asked for a sign of life
		require.ErrorIs(t, from.Ready(t.Context()), tenure.ErrUnreachable)
	}
	ours.SetError("")
	require.NoError(t, from.Ready(t.Context()))
}

// clusterOf are options of a cluster of two masters: ours has the slot of {shop}, 3808, and other
// that of {b}, 3300.
func clusterOf(ours, other *miniredis.Miniredis) *redis.ClusterOptions {
	return &redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{
			{Start: 0, End: 3500, Nodes: []redis.ClusterNode{{Addr: other.Addr()}}},
			{Start: 3501, End: 16383, Nodes: []redis.ClusterNode{{Addr: ours.Addr()}}},
		}, nil
	}}
}

// scripted answers each call of a client in place of a server.
type scripted func(ctx context.Context, args []any) (reply []any, err error)

func (scripted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s scripted) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		reply, err := s(ctx, cmd.Args())
		if cmd.SetErr(err); err == nil {
			cmd.(*redis.SliceCmd).SetVal(reply)
		}
		return err
	}
}

func (scripted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestFollowOverRedis: it looks once a second behind the last change that it has taken, waits for
// an answer for as long as a question may take, and says once of each outage that there is none.
func TestFollowOverRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // no name: the resolver keeps what it has made in a bubble
		defer func() { _ = client.Close() }()
		began := time.Now()
		at := func() time.Duration { return time.Since(began) / time.Second }
		var mu sync.Mutex // a question that hangs is not waited for
		var hung []time.Duration
		behind := make(map[any]bool) // which entries of the log
		client.AddHook(scripted(func(ctx context.Context, args []any) ([]any, error) {
			mu.Lock()
			behind[args[len(args)-2]] = true
			mu.Unlock()
			switch at() {
			case 2:
				return []any{"1", "2-0", "joined", "web-2 web-3", "", "", "", "", "3-0", "left", "web-2", "", "", "", ""}, nil
			case 3, 4, 6, 7:
				return nil, errors.New("LOADING Redis is loading the dataset in memory")
			case 9:
				<-ctx.Done()
				mu.Lock()
				hung = append(hung, at())
				mu.Unlock()
				return nil, ctx.Err()
			}
			return []any{"1"}, nil
		}))
		control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: "shop", By: "test"})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var heard, said []string
		(&Redis{Control: control, Client: client, Timeout: 5 * time.Second}).Follow(ctx, "1-0", func(changes []tenure.Change) {
			for _, c := range changes {
				heard = append(heard, c.ID+" "+c.InstanceID)
			}
		}, func(problem string) { said = append(said, fmt.Sprint(int(at()), " ", problem)) })
		require.Equal(t, []string{"2-0 web-2", "2-0 web-3", "3-0 web-2"}, heard)
		const loading = "tenure: redis gave no usable answer: read_log: LOADING Redis is loading the dataset in memory"
		require.Equal(t, []string{"3 " + loading, "6 " + loading, "14 tenure: redis gave no usable answer: no answer within 5s"}, said)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []time.Duration{14}, hung)
		require.Equal(t, map[any]bool{"1-0": true, "3-0": true}, behind)
	})
}

// infoHook answers INFO by section.
type infoHook map[string]string

func (infoHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (i infoHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		info, is := cmd.(*redis.StringCmd)
		if !is || info.Name() != "info" {
			return next(ctx, cmd)
		}
		text, known := i[fmt.Sprint(info.Args()[1])]
		if !known {
			info.SetErr(errors.New("NOPERM this user has no permissions to run the 'info' command"))
			return info.Err()
		}
		info.SetVal(text)
		return nil
	}
}

func (infoHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestServerThatRefusesLeases: a replica, a full server, and a master that has fewer replicas than
// it needs grant no lease, whatever they know of it. What INFO does not say is not known, and
// nobody asks for it while all roles are led.
func TestServerThatRefusesLeases(t *testing.T) {
	const master, replica = "# Replication\r\nrole:master\r\n", "# Replication\r\nrole:slave\r\nmaster_host:redis-0\r\n"
	memory := func(used, most int, policy string) string {
		return fmt.Sprintf("# Memory\r\nused_memory:%d\r\nmaxmemory:%d\r\nmaxmemory_policy:%s\r\n", used, most, policy)
	}
	for want, hooks := range map[string][]infoHook{
		"": {
			{}, {"replication": master, "memory": memory(5, 0, "noeviction")}, {"replication": master, "memory": memory(5, 6, "noeviction")},
			{"memory": memory(7, 6, "noeviction") + "mem_not_counted_for_evict:2\r\n"}, // a replica lags
			{"memory": memory(7, 6, "allkeys-lru")}, {"replication": master}, {"replication": master + "min_slaves_good_slaves:1\r\n"},
		},
		"it has no replica that is in step, and min-replicas-to-write asks for some": {{"replication": master + "connected_slaves:1\r\nmin_slaves_good_slaves:0\r\n"}},
		"it is a replica": {{"replication": replica}, {"replication": replica + "min_slaves_good_slaves:0\r\n"}, {"replication": replica, "memory": memory(7, 6, "noeviction")}},
		"it is full":      {{"memory": memory(6, 6, "noeviction")}, {"replication": master, "memory": memory(7, 6, "noeviction")}},
	} {
		for _, hook := range hooks {
			from, server := shop(t)
			from.Client.AddHook(hook)
			c, err := from.Cluster(t.Context())
			require.NoError(t, err)
			require.False(t, c.Roles[0].Led)
			require.Equal(t, want, c.Server.Refuses, hook)
			require.NoError(t, server.Set("shop:leader", "web-1"))
			c, err = from.Cluster(t.Context())
			require.NoError(t, err)
			require.True(t, c.Roles[0].Led)
			require.Empty(t, c.Server.Refuses)
		}
	}
}

// TestServerThatCannotSave: a server whose disk is full refuses every write, and says so to PING
// too. All can be read, and nothing be changed. In a cluster the server that has the keys counts.
func TestServerThatCannotSave(t *testing.T) {
	for name, clientOf := range map[string]func(addr string) redis.UniversalClient{
		"alone": func(addr string) redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: addr}) },
		"cluster": func(addr string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			mini := miniredis.RunT(t)
			from := sourceOf(t, clientOf(mini.Addr()), "{shop}")
			require.NoError(t, from.Ready(t.Context()))
			mini.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
				if cmd != "PING" {
					return false
				}
				peer.WriteError("MISCONF Errors writing to the AOF file: No space left on device")
				return true
			})
			c, err := from.Cluster(t.Context())
			require.NoError(t, err)
			require.False(t, c.Roles[0].Led)
			require.Contains(t, c.Server.Refuses, "MISCONF")
			err = from.Ready(t.Context())
			require.ErrorIs(t, err, tenure.ErrUnreachable)
			require.ErrorContains(t, err, "No space left")
			require.ErrorContains(t, err, "(fix: ")
		})
	}
}

// TestMasterThatRefusesLeases: in a cluster the master that has the keys of the namespace may be
// full, and the others not.
func TestMasterThatRefusesLeases(t *testing.T) {
	full, other := miniredis.RunT(t), miniredis.RunT(t)
	for of, used := range map[*miniredis.Miniredis]int{full: 7, other: 5} {
		of.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
			if cmd != "INFO" {
				return false
			}
			peer.WriteBulk(fmt.Sprintf("role:master\r\nused_memory:%d\r\nmaxmemory:6\r\nmaxmemory_policy:noeviction\r\n", used))
			return true
		})
	}
	for namespace, want := range map[string]string{"{shop}": "it is full", "{b}": ""} {
		from := sourceOf(t, redis.NewClusterClient(clusterOf(full, other)), namespace)
		c, err := from.Cluster(t.Context())
		require.NoError(t, err)
		require.False(t, c.Roles[0].Led)
		require.Equal(t, want, c.Server.Refuses, namespace)
	}
}
