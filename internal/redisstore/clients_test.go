package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
	"github.com/tenure-go/tenure/internal/store"
)

func TestLikelyCause(t *testing.T) {
	slow := fmt.Errorf("dial: %w", context.DeadlineExceeded)
	for _, test := range []struct {
		tls  bool
		err  error
		says string // "": nothing is guessed
	}{
		{false, fmt.Errorf("HELLO: %w", io.EOF), needsTLS},
		{false, slow, ""},
		{false, errBroken, ""},
		{true, tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, noTLS},
		{true, slow, noTLS},
		{true, io.EOF, ""},
		{false, fmt.Errorf("HELLO: %w", os.NewSyscallError("write", syscall.EPIPE)), endsConnections},
		{true, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, endsConnections},
		{false, refusal("ERR max number of clients reached"), endsConnections},
	} {
		err := (&Store{tls: test.tls}).explain("beat", test.err)
		require.ErrorIs(t, err, store.ErrUnreachable)
		require.Equal(t, test.says, store.FixOf(err), "TLS %v: %v", test.tls, test.err)
	}
	for _, test := range []struct {
		tls   bool
		heard error // of the call before
		err   error
		says  string
	}{
		{true, nil, slow, ""},
		{true, refusal("LOADING"), slow, ""},
		{true, slow, slow, noTLS},
		{true, nil, tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, noTLS},
		{false, nil, fmt.Errorf("HELLO: %w", io.EOF), ""},
		{false, io.EOF, fmt.Errorf("HELLO: %w", io.EOF), needsTLS},
	} {
		s := &Store{tls: test.tls, calls: new(callHook)}
		s.calls.heard(test.heard)
		require.Equal(t, test.says, store.FixOf(s.explain("beat", test.err)), "TLS %v: %v after %v", test.tls, test.err, test.heard)
	}
}

// TestAnswersOfSentinels: the error says what is wrong between the client and the Sentinels, also
// if go-redis has kept the text of their answers only.
func TestAnswersOfSentinels(t *testing.T) {
	for _, test := range []struct {
		answer error
		kind   error
		says   string // "": nothing is guessed
	}{
		{redis.Nil, store.ErrUnreachable, "no Sentinel knows a master of that name"},
		{refusal("NOAUTH Authentication required."), store.ErrMisconfigured, "set SentinelUsername and SentinelPassword"},
		{refusal("WRONGPASS invalid username-password pair or user is disabled."), store.ErrMisconfigured, "set SentinelUsername and SentinelPassword"},
		{refusal("NOPERM this user has no permissions to run the 'sentinel|get-master-addr-by-name' command"), store.ErrMisconfigured, "grant the user of Sentinel"},
		{refusal("ERR unknown command 'sentinel', with args beginning with: 'get-master-addr-by-name' 'main' "), store.ErrMisconfigured, "the addresses must be those of Sentinels"},
		{io.ErrUnexpectedEOF, store.ErrUnreachable, ""},
	} {
		for _, format := range []string{"redis: all sentinels specified in configuration are unreachable: %w", "redis: all sentinels specified in configuration are unreachable: %s"} {
			err := (&Store{}).explain("leader", fmt.Errorf(format, test.answer))
			require.ErrorIs(t, err, test.kind)
			if test.says == "" {
				require.Empty(t, store.FixOf(err))
			}
			require.Contains(t, store.FixOf(err), test.says)
		}
	}
}

// TestSentinelsSpeakInOneLine: go-redis has a line for each Sentinel, which mostly say the same.
func TestSentinelsSpeakInOneLine(t *testing.T) {
	const silent = "redis: all sentinels specified in configuration are unreachable"
	refused := refusal("WRONGPASS no")
	err := (&Store{}).explain("leader", fmt.Errorf("%s: %w", silent, errors.Join(refused, io.EOF, refused)))
	require.ErrorContains(t, err, "leader: "+silent+": EOF; WRONGPASS no (fix: ")
	require.NotContains(t, err.Error(), "\n")
	require.ErrorIs(t, err, io.EOF)
	require.ErrorContains(t, (&Store{}).explain("leader", errors.New(silent)), "leader: "+silent)
}

// TestClientOfAnotherKindIsNamed: a client of one server does not follow a Cluster, and one of a
// Cluster has no use for a Redis that is none. Both wait for ever, unless somebody changes that. A
// connection beside the pool of a cluster's client is one of one node, and may meet a slot that has
// moved.
func TestClientOfAnotherKindIsNamed(t *testing.T) {
	single, clustered := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _, _ = single.Close(), clustered.Close() })
	moved, none := refusal("MOVED 3808 127.0.0.1:17000"), refusal("ERR This instance has cluster support disabled")
	node := *openStore(clustered, "{ns}")
	node.rdb = single
	for _, test := range []struct {
		of   *Store
		err  error
		says string // "": it passes by itself
	}{
		{openStore(single, "ns"), moved, isCluster},
		{openStore(clustered, "{ns}"), moved, ""},
		{&node, moved, ""},
		{openStore(clustered, "{ns}"), none, noCluster},
		{openStore(clustered, "{ns}"), refusal("ERR Cluster is disabled. Use --cluster_mode=yes to enable."), noCluster},
		{openStore(clustered, "{ns}"), refusal("ERR unknown command `cluster`, with args beginning with: `slots`, "), noCluster},
		{openStore(clustered, "{ns}"), redis.Nil, namesNodes},
		{openStore(single, "ns"), redis.Nil, ""},
		{openStore(single, "ns"), refusal("ASK 3808 127.0.0.1:17000"), ""},
	} {
		err := test.of.explain("renew", test.err)
		kind := store.ErrUnreachable
		if test.says != "" {
			kind = store.ErrMisconfigured
		}
		require.ErrorIs(t, err, kind, "%T: %v", test.of.rdb, test.err)
		require.Equal(t, test.says, store.FixOf(err), "%T: %v", test.of.rdb, test.err)
	}
}

// TestClientCertificateIsAskedFor: a server with TLS that wants a certificate of its clients is
// running, and the error says what it lacks.
func TestClientCertificateIsAskedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	authority := redistest.NewAuthority(t)
	opts := redistest.Start(t, redistest.Secured(authority)).Options()
	asking := redistest.Start(t, redistest.Secured(authority))
	harness := asking.Client(t).Conn() // stays connected
	t.Cleanup(func() { _ = harness.Close() })
	require.NoError(t, harness.ConfigSet(t.Context(), "tls-auth-clients", "yes").Err())
	opts.Addr, opts.MaxRetries = asking.Addr(), -1
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	db := openStore(client, "tenure")
	fixes := map[string]bool{}
	for range 20 { // a broken pipe may come first: that says less
		_, _, err := db.Instance(t.Context(), "me")
		require.ErrorIs(t, err, store.ErrUnreachable)
		fixes[store.FixOf(err)] = true
	}
	require.Contains(t, fixes, asksForCertificate)
	require.NoError(t, harness.ConfigSet(t.Context(), "tls-auth-clients", "no").Err())
}

// Client and server that do not agree on TLS: the error says what it likely is, whichever way
// round.
func TestTLSOnOneSideIsNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	ask := func(server *redistest.Server, change func(*redis.Options)) (*Store, error) {
		opts := server.Options()
		opts.MaxRetries, opts.DialTimeout = -1, 500*time.Millisecond
		clientopts.Set(opts, "DialerRetries", 1)
		change(opts)
		client := redis.NewClient(opts)
		t.Cleanup(func() { _ = client.Close() })
		db := openStore(client, "tenure")
		_, err := db.ForRole(store.Role{Key: "tenure:leader", Holder: "me", TTL: 30 * time.Second, Attempt: 10 * time.Second}).Leader(context.Background())
		return db, err
	}
	authority := redistest.NewAuthority(t)
	db, err := ask(redistest.Start(t, redistest.Secured(authority)), func(o *redis.Options) { o.TLSConfig = nil })
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.ErrorContains(t, err, "fix: "+needsTLS)
	require.Empty(t, db.Silence())
	db, err = ask(redistest.Start(t), func(o *redis.Options) { o.TLSConfig = authority.Trusted() })
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.ErrorContains(t, err, "fix: "+noTLS)
	require.Equal(t, noTLS, db.Silence())

	// A Redis that has answered, and hangs now, does speak TLS.
	server := redistest.Start(t, redistest.Secured(authority))
	db, err = ask(server, func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
	require.NoError(t, err)
	server.Pause(t)
	_, _, err = db.Instance(t.Context(), "me")
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.NotContains(t, err.Error(), "fix: ")
	require.Empty(t, db.Silence())
}

// A server that has as many clients as it may ends a connection before it has read anything of it:
// the client mostly hears of that as of a broken pipe, and not of the reason.
func TestTooManyClientsAreNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	only := server.Client(t).Conn()
	t.Cleanup(func() { _ = only.Close() })
	require.NoError(t, only.ConfigSet(t.Context(), "maxclients", "1").Err())
	opts := server.Options()
	opts.MaxRetries = -1
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	db := openStore(client, "tenure")
	fixes := map[string]bool{}
	for range 50 { // an EOF may come first: that says less
		_, _, err := db.Instance(t.Context(), "me")
		require.ErrorIs(t, err, store.ErrUnreachable)
		fixes[store.FixOf(err)] = true
	}
	require.Contains(t, fixes, endsConnections)
	require.NotContains(t, fixes, "")
}

// TestProtectedModeIsNamed: a Redis without a password that is reached from another machine gives
// its reason and ends the connection, as one with too many clients does. Whichever of that the
// client hears, the fix names protected mode, and never maxclients or TLS alone.
func TestProtectedModeIsNamed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wait atomic.Bool // the client may write before the connection ends, as over a network
	go func() {          // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. "+
				"In this mode connections are only accepted from the loopback interface. And so on.\r\n")
			if wait.Load() {
				_, _ = conn.Read(make([]byte, 1))
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), MaxRetries: -1, Protocol: protocol})
		t.Cleanup(func() { _ = client.Close() })
		db := openStore(client, "tenure")
		for i := range 50 {
			wait.Store(i%2 == 0)
			_, _, err := db.Instance(t.Context(), "me")
			require.ErrorContains(t, err, "protected")
			require.Contains(t, store.FixOf(err), "protected", err)
			require.NotContains(t, err.Error(), "And so on")
		}
	}
	denied := new(Store).explain("beat", refusal("DENIED Redis is running in protected mode. Because."))
	require.ErrorIs(t, denied, store.ErrMisconfigured)
	require.Equal(t, inProtectedMode, store.FixOf(denied))
	require.NotContains(t, denied.Error(), "Because")
}

// An asynchronous AutoPipeliner returns nil from Process before the command has run. What the
// command says counts: that the server does not know the script, and that there is none.
func TestAsynchronousClient(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	pipeliner := simnet.AutoPipeliner(t, client, "AsyncAutoPipeline")
	db, role := openStore(pipeliner, "{ns}"), roleOf(pipeliner, "{ns}")
	reply, err := role.Leader(t.Context())
	require.NoError(t, err, "NOSCRIPT is heard of, and the script sent")
	require.Empty(t, reply.Holder)
	_, _, err = db.Instance(t.Context(), "me")
	require.ErrorIs(t, err, store.ErrNotFound)
	server.SetError("LOADING wait")
	_, err = role.Leader(t.Context())
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.ErrorContains(t, err, "LOADING wait", "and not that the reply is malformed")
}

// A call of an election ends with its attempt, also with a client that would wait for ever: its
// connection, and its place among the calls in flight, are free again.
func TestCallsOfAnElectionEndWithTheirAttempt(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // connections stand, and nothing is answered
	require.NoError(t, err)
	defer mute.Close()
	client := redis.NewClient(&redis.Options{Addr: mute.Addr().String(), ReadTimeout: -1, MaxRetries: -1, Protocol: 2, DisableIdentity: true})
	defer client.Close()
	role := openStore(client, "tenure").ForRole(store.Role{Key: "tenure:leader", Holder: "me", TTL: 300 * time.Millisecond, Attempt: 100 * time.Millisecond})
	done := make(chan error, 1)
	go func() {
		_, err := role.Leader(context.Background())
		done <- err
	}()
	select {
	case err := <-done:
		require.ErrorIs(t, err, store.ErrUnreachable)
	case <-time.After(20 * time.Second):
		t.Fatal("the call hangs")
	}
}

// halfError is an error of which one method panics for a nil pointer.
type halfError struct{ timeout bool }

func (*halfError) Error() string     { return "half" }
func (e *halfError) Timeout() bool   { return e.timeout }
func (e *halfError) Temporary() bool { return false }

// TestErrorsOfHooks: an error of a hook whose methods panic counts as a panic of the client.
func TestErrorsOfHooks(t *testing.T) {
	for _, hostile := range []error{(*halfError)(nil), fmt.Errorf("a hook: %w", (*halfError)(nil)), (*url.Error)(nil)} {
		err := recovering(func() error { return hostile })
		require.True(t, panicked(err))
		require.ErrorContains(t, err, "panicked")
	}
	require.Equal(t, io.EOF, recovering(func() error { return io.EOF }))
	require.NoError(t, recovering(func() error { return nil }))
}

// TestErrorsNameTheirKey: if a key is of the wrong type, command and key are named, whether the
// command travels alone or with others. Any other error stays as it is.
func TestErrorsNameTheirKey(t *testing.T) {
	c := miniCluster(t, "ns")
	require.NoError(t, c.mini.Set("ns:text", "x"))
	cmds := func() []redis.Cmder {
		ctx := t.Context()
		return []redis.Cmder{redis.NewStringCmd(ctx, "hget", "ns:text", "f"), redis.NewIntCmd(ctx, "hlen", "ns:text"), redis.NewStringCmd(ctx, "get", "ns:text"), redis.NewStringCmd(ctx, "hget")}
	}
	wants := []string{"[HGET ns:text]", "[HLEN ns:text]", "", "wrong number of arguments"}
	together := cmds()
	c.store.pipelined(t.Context(), "ns:text", together)
	for i, cmd := range cmds() {
		for _, err := range []error{c.store.process(t.Context(), cmd), together[i].Err()} {
			if wants[i] == "" {
				require.NoError(t, err)
				continue
			}
			require.ErrorContains(t, err, wants[i])
			require.Equal(t, i < 2, redis.HasErrorPrefix(err, "WRONGTYPE"), err)
		}
	}
	for _, args := range [][]any{{"ping"}, {"eval", "a script", "0"}, {"evalsha", "a digest", "0"}} { // the scripts name the key themselves
		cmd := redis.NewCmd(t.Context(), args...)
		cmd.SetErr(refusal("WRONGTYPE of something"))
		require.EqualError(t, withKey(cmd), "WRONGTYPE of something")
	}
}

// TestCommandsOfOtherServers: a proxy, or a server that is like Redis, may not know a command that
// an election can do without. That is no reason for another version of Redis.
func TestCommandsOfOtherServers(t *testing.T) {
	for _, text := range []string{
		"ERR unknown command 'subscribe', with args beginning with: 'ns:events' ", "ERR unknown command `SUBSCRIBE`", "unsupported command 'subscribe'",
	} {
		err := explainChannels("SUBSCRIBE", "+subscribe", refusal(text), []string{"ns:events"})
		require.ErrorIs(t, err, store.ErrMisconfigured)
		require.Contains(t, store.FixOf(err), "connect to a Redis that has SUBSCRIBE")
	}
	require.Contains(t, store.FixOf(explain("acquire", refusal("ERR unknown command 'evalsha'"))), "Redis 6.2 or later")
	require.Contains(t, store.FixOf(explain("acquire", refusal("ERR invalid password"))), "Username and Password", "as Envoy and Kvrocks say it")
}

// countingPipelines counts the pipelines of a client.
type countingPipelines struct {
	redis.UniversalClient
	pipelines int
}

func (c *countingPipelines) Pipeline() redis.Pipeliner {
	c.pipelines++
	return c.UniversalClient.Pipeline()
}

// TestUnknownClientsSendNoPipelines: where a client reads the replies of a pipeline is not known of
// a wrapper. Its commands go one by one, and each has its answer.
func TestUnknownClientsSendNoPipelines(t *testing.T) {
	c := miniCluster(t, "ns")
	require.NoError(t, c.mini.Set("ns:text", "x"))
	wrapper := &countingPipelines{UniversalClient: c.rdb}
	db := openStore(wrapper, "ns")
	require.False(t, db.Pipelines())
	require.True(t, c.store.Pipelines())
	get, hlen := redis.NewStringCmd(t.Context(), "get", "ns:text"), redis.NewIntCmd(t.Context(), "hlen", "ns:text")
	db.pipelined(t.Context(), "ns:text", []redis.Cmder{get, hlen})
	require.Equal(t, "x", get.Val())
	require.ErrorContains(t, hlen.Err(), "[HLEN ns:text]")
	require.Zero(t, wrapper.pipelines)
}

// TestPipelineThatIsNotSent: each of its commands has the error, whatever the client has said of
// them. One that was answered is not sent again.
func TestPipelineThatIsNotSent(t *testing.T) {
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errBroken }})
	defer gone.Close()
	nowhere := redis.NewClusterClient(&redis.ClusterOptions{MaxRedirects: -1, ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return nil, errBroken }})
	defer nowhere.Close()
	for name, client := range map[string]redis.UniversalClient{"single": gone, "cluster": nowhere} {
		cmds := []redis.Cmder{redis.NewStringCmd(t.Context(), "get", "{ns}:a"), redis.NewStringCmd(t.Context(), "get", "{ns}:b")}
		openStore(client, "{ns}").pipeline(t.Context(), "{ns}:a", cmds)
		for _, cmd := range cmds {
			require.ErrorContains(t, cmd.Err(), errBroken.Error(), name)
		}
	}
	server := miniredis.RunT(t)
	require.NoError(t, server.Set("{ns}:a", "x"))
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	defer cluster.Close()
	sent := 0
	cluster.AddHook(namedHook{func(string) error { sent++; return nil }})
	cmds := []redis.Cmder{redis.NewStringCmd(t.Context(), "get", "{ns}:a"), redis.NewIntCmd(t.Context(), "hlen", "{ns}:a")}
	openStore(cluster, "{ns}").pipelined(t.Context(), "{ns}:a", cmds)
	require.NoError(t, cmds[0].Err())
	require.ErrorContains(t, cmds[1].Err(), "[HLEN {ns}:a]")
	require.Equal(t, 1, sent, "the one that failed is sent again, by the client that follows a slot")
}

// namedHook has the commands of a client seen before they are sent, in a pipeline or not.
type namedHook struct{ sees func(name string) error }

func (namedHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h namedHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.sees(cmd.Name()); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (h namedHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := h.sees(cmds[0].Name()); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// TestRecordsByTheClockOfTheirMaster: on a Cluster the time of a listing is that of the master that
// has the records, and a connection that breaks costs no listing.
func TestRecordsByTheClockOfTheirMaster(t *testing.T) {
	ours, other := miniredis.RunT(t), miniredis.RunT(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{
			{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: other.Addr()}}},
			{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: ours.Addr()}}}, // with {ns}, 9937
		}, nil
	}})
	t.Cleanup(func() { _ = client.Close() })
	var mu sync.Mutex
	asked := make(map[string]int)
	client.OnNewNode(func(node *redis.Client) {
		node.AddHook(namedHook{func(name string) error {
			mu.Lock()
			defer mu.Unlock()
			if name != "time" {
				return nil
			}
			_, port, _ := net.SplitHostPort(node.Options().Addr)
			if asked[port]++; asked[port] == 1 {
				return io.EOF
			}
			return nil
		}})
	})
	db := openStore(client, "{ns}")
	for range 20 {
		now, _, problems, err := db.Records(t.Context(), []string{"t"})
		require.NoError(t, err)
		require.NotZero(t, now)
		require.NoError(t, problems[0])
	}
	require.GreaterOrEqual(t, asked[ours.Port()], 20, asked)
}

// TestListingsAreOfTheMaster: a client of a cluster that reads from replicas lists what the master
// has all the same. A replica may lag behind, and each lists in an order of its own.
func TestListingsAreOfTheMaster(t *testing.T) {
	for name, change := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":      func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteRandomly": func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		t.Run(name, func(t *testing.T) {
			master, replica := miniredis.RunT(t), miniredis.RunT(t)
			var asked sync.Map
			replica.Server().SetPreHook(func(_ *server.Peer, cmd string, args ...string) bool {
				if len(args) > 0 && strings.HasPrefix(args[0], "{ns}:") {
					asked.Store(cmd, args[0])
				}
				return false
			})
			opts := &redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: master.Addr()}, {Addr: replica.Addr()}}}}, nil
			}}
			change(opts)
			client := redis.NewClusterClient(opts)
			t.Cleanup(func() { _ = client.Close() })
			_, err := master.SAdd("{ns}:tasks", "report")
			require.NoError(t, err)
			db := openStore(client, "{ns}")
			role := db.ForRole(store.Role{Key: "{ns}:leader", Holder: "me", TTL: time.Minute})
			for range 10 { // it may draw lots
				names, _, err := db.Names(t.Context(), 10)
				require.NoError(t, err)
				require.Equal(t, []string{"report"}, names)
				_, err = db.Runs(t.Context(), "report", 10)
				require.NoError(t, err)
				_, err = db.LogEnd(t.Context())
				require.NoError(t, err)
				_, err = db.LogTail(t.Context(), 10)
				require.NoError(t, err)
				_, err = db.CommandLog(t.Context())
				require.NoError(t, err)
				_, err = db.Aggregates(t.Context(), 10)
				require.NoError(t, err)
				_, err = role.Terms(t.Context(), 10)
				require.NoError(t, err)
				_, err = role.Vacancy(t.Context())
				require.NoError(t, err)
			}
			asked.Range(func(cmd, key any) bool {
				t.Errorf("a replica was asked: %v %v", cmd, key)
				return true
			})
		})
	}
}
