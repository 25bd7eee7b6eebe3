//go:build unix

package redistest

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func set(t *testing.T, c *redis.Client, key, value string) {
	t.Helper()
	if err := c.Set(t.Context(), key, value, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// get returns the value, "" if there is none.
func get(t *testing.T, c *redis.Client, key string) string {
	t.Helper()
	value, err := c.Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return value
}

func TestServer_LosesDataUnlessPersistent(t *testing.T) {
	NoLeaks(t)
	for name, tc := range map[string]struct {
		opts []Option
		want string
	}{
		"without persistence": {nil, ""},
		"with AOF":            {[]Option{Persist()}, "v"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Start(t, tc.opts...)
			c := s.Client(t)
			addr, first := s.Addr(), s.Info(t, "server")["run_id"]
			set(t, c, "k", "v")
			s.Restart(t)
			if got := get(t, c, "k"); got != tc.want {
				t.Errorf("after a restart: %q, want %q", got, tc.want)
			}
			set(t, c, "k", "v")
			s.Kill(t)
			if !refused(addr) {
				t.Error("a killed server answers")
			}
			s.Start(t)
			if got := get(t, c, "k"); got != tc.want {
				t.Errorf("after a kill: %q, want %q", got, tc.want)
			}
			if s.Addr() != addr || s.Info(t, "server")["run_id"] == first {
				t.Error("want another process on the same port")
			}
		})
	}
}

func TestServer_PauseFreezes(t *testing.T) {
	NoLeaks(t)
	s := Start(t)
	opts := s.Options()
	opts.ReadTimeout, opts.MaxRetries = 300*time.Millisecond, -1
	impatient := redis.NewClient(opts)
	defer impatient.Close()
	eventually(t, "a connection", func() bool { return impatient.Set(t.Context(), "k", "1", 0).Err() == nil })
	s.Pause(t)
	err := impatient.Set(t.Context(), "k", "2", 0).Err()
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("paused server: %v, want a time-out", err)
	}
	s.Resume(t)
	// The request that nobody waits for any more takes effect all the same.
	eventually(t, "the late request to take effect", func() bool { return get(t, s.Client(t), "k") == "2" })
}

func TestServer_ClosesWhatIsPausedOrDead(t *testing.T) {
	for name, fault := range map[string]func(s *Server){
		"paused":  func(s *Server) { s.Pause(t) },
		"killed":  func(s *Server) { s.Kill(t) },
		"stopped": func(s *Server) { s.Stop(t) },
		"paused, then stopped": func(s *Server) {
			s.Pause(t)
			s.Stop(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Launch()
			if err != nil {
				t.Fatal(err)
			}
			fault(s)
			for range 2 {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
				t.Errorf("folder is left: %v", err)
			}
			if !refused(s.Addr()) {
				t.Error("server is left")
			}
		})
	}
}

func TestServer_Settings(t *testing.T) {
	s := Start(t, Args("--maxmemory", "3mb", "--user", "limited", "on", ">secret", "~app:*", "+@all"))
	c := s.Client(t)
	if got := c.ConfigGet(t.Context(), "maxmemory").Val()["maxmemory"]; got != "3145728" {
		t.Errorf("maxmemory is %q", got)
	}
	s.ConfigSet(t, "maxmemory", "4mb")
	if got := c.ConfigGet(t.Context(), "maxmemory").Val()["maxmemory"]; got != "4194304" {
		t.Errorf("maxmemory is %q after ConfigSet", got)
	}
	opts := s.Options()
	opts.Username, opts.Password = "limited", "secret"
	limited := redis.NewClient(opts)
	defer limited.Close()
	if err := limited.Set(t.Context(), "app:k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
	if err := limited.Set(t.Context(), "k", "v", 0).Err(); err == nil {
		t.Error("the ACL of Args does not hold")
	}
}

func TestServer_Login(t *testing.T) {
	s := Start(t, Args("--requirepass", "secret"), Login("", "secret"))
	set(t, s.Client(t), "k", "v")
	s.Restart(t)
	if s.Info(t, "server")["run_id"] == "" { // Redis and Valkey both say it
		t.Error("INFO says nothing")
	}
}

func TestServer_WaitUptime(t *testing.T) {
	s := Start(t)
	s.WaitUptime(t, 2)
	if up := s.Info(t, "server")["uptime_in_seconds"]; up == "0" || up == "1" {
		t.Errorf("uptime is %s s", up)
	}
}

// A promoted replica that was detached before the last write: the write is lost, and INFO shows the
// other history.
func TestServer_PromotedReplicaMissesLastWrites(t *testing.T) {
	NoLeaks(t)
	master := Start(t)
	replica := Start(t, ReplicaOf(master))
	before := replica.Info(t, "replication")
	set(t, master.Client(t), "early", "v")
	replica.WaitReplicated(t)
	synced := replica.Info(t, "replication")
	replica.Detach(t)
	detached := replica.Info(t, "replication")
	set(t, master.Client(t), "late", "v")
	c := replica.Client(t)
	if get(t, c, "early") != "v" || c.Set(t.Context(), "k", "v", 0).Err() == nil {
		t.Error("a detached replica must answer reads and refuse writes")
	}
	replica.Promote(t)
	promoted := replica.Info(t, "replication")
	for _, state := range []struct {
		name string
		info map[string]string
	}{{"started", before}, {"in sync", synced}, {"detached", detached}, {"promoted", promoted}} {
		t.Logf("%-9s role %s link %q replid %.8s replid2 %.8s offset %s second %s", state.name, state.info["role"],
			state.info["master_link_status"], state.info["master_replid"], state.info["master_replid2"],
			state.info["master_repl_offset"], state.info["second_repl_offset"])
	}
	if get(t, c, "early") != "v" || get(t, c, "late") != "" {
		t.Error("want the early write only")
	}
	set(t, c, "k", "v")
	old := master.Info(t, "replication")["master_replid"]
	if promoted["master_replid2"] != old || promoted["master_replid"] == old {
		t.Errorf("replication ids %s, %s; the old master has %s", promoted["master_replid"], promoted["master_replid2"], old)
	}

	master.Follow(t, replica)
	master.WaitReplicated(t)
	if get(t, master.Client(t), "late") != "" || get(t, master.Client(t), "k") != "v" {
		t.Error("the deposed master keeps its own history")
	}
	replica.Restart(t)
	info := replica.Info(t, "replication")
	t.Logf("restarted role %s replid %.8s replid2 %.8s second %s", info["role"], info["master_replid"], info["master_replid2"],
		info["second_repl_offset"])
	if info["role"] != "master" {
		t.Errorf("role %q after a restart, want master", info["role"])
	}
}

func TestServer_ReplicaStaysDetached(t *testing.T) {
	master := Start(t)
	replica := Start(t, ReplicaOf(master), Persist())
	replica.WaitReplicated(t)
	replica.Detach(t)
	replica.Restart(t)
	if info := replica.Info(t, "replication"); info["role"] != "slave" || info["master_port"] != refusingPort {
		t.Errorf("after a restart: %v", info)
	}
	replica.Follow(t, master)
	replica.WaitReplicated(t)
}

func TestServer_Misuse(t *testing.T) {
	s := Start(t)
	for name, tc := range map[string]struct {
		fn   func(t TB)
		want string
	}{
		"start twice":          {s.Start, "runs already"},
		"detach a master":      {s.Detach, "not a replica"},
		"wait for a master":    {s.WaitReplicated, "not a replica"},
		"unknown setting":      {func(t TB) { s.ConfigSet(t, "no-such-thing", "1") }, "no-such-thing"},
		"redis refuses to run": {func(t TB) { Start(t, Args("--no-such-thing", "1")) }, "no-such-thing"},
		"kill twice": {func(t TB) {
			dead := Start(t)
			dead.Kill(t)
			dead.Kill(t)
		}, "not running"},
	} {
		t.Run(name, func(t *testing.T) { mustContain(t, record(tc.fn), tc.want) })
	}
}

func TestServer_NotInstalled(t *testing.T) {
	t.Setenv("TENURE_REDIS_SERVER", "no-such-redis-server")
	if _, err := Launch(); !errors.Is(err, ErrNoServer) {
		t.Errorf("got %v", err)
	}
	mustContain(t, record(func(t TB) { Start(t) }), "make install-redis")
}

func TestServer_TakenPort(t *testing.T) {
	ln, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s := Start(t)
	s.Stop(t)
	free := s.port
	s.port = ln.Addr().(*net.TCPAddr).Port
	if err := s.start(); !errors.Is(err, errPortTaken) {
		t.Errorf("got %v", err)
	}
	s.port = free
	s.Start(t)
}

// A locked goroutine takes its thread with it when it ends; a server must not be the child of that
// thread.
func TestServer_OutlivesThreadsOfTheCaller(t *testing.T) {
	var servers [2]*Server
	var wg, locked sync.WaitGroup
	locked.Add(len(servers)) // two threads at a time: the main thread, which never ends, is at most one of them
	for i := range servers {
		wg.Go(func() { // ends after the launch, waited for below
			runtime.LockOSThread()
			locked.Done()
			locked.Wait()
			var err error
			if servers[i], err = Launch(); err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = servers[i].Close() })
		})
	}
	wg.Wait()
	Start(t).WaitUptime(t, 1) // long enough for a signal
	for _, s := range servers {
		if s != nil && refused(s.Addr()) {
			t.Error("a server died with a thread")
		}
	}
}

func TestDo_CollectsFailures(t *testing.T) {
	var order []string
	err := Do(func(t TB) {
		t.Cleanup(func() { order = append(order, "first") })
		t.Cleanup(func() { t.Fatalf("clean-up failed") })
		t.Cleanup(func() { order = append(order, "last") })
		t.Errorf("one")
		t.Fatalf("two") //nolint:revive // what follows is unreachable, if it does what it should
		order = append(order, "never")
	})
	if err == nil || err.Error() != "one\ntwo\nclean-up failed" {
		t.Errorf("got %v", err)
	}
	if got := strings.Join(order, " "); got != "last first" {
		t.Errorf("order: %s", got)
	}
	if err := Do(func(t TB) {
		s := Start(t)
		if err := s.Client(t).Ping(context.Background()).Err(); err != nil {
			t.Errorf("ping: %v", err)
		}
	}); err != nil {
		t.Error(err)
	}
}
