//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	sentinelConf   = "sentinel.conf"
	sentinelMaster = "main"

	// DownAfter is how long Sentinel, and Cluster, take to believe that a server is gone.
	DownAfter = time.Second

	hour       = time.Hour              // a starved Sentinel would retire for 30 s if it had not run for 2 s
	infoPeriod = 500 * time.Millisecond // how often a Sentinel looks what a server is; 10 s by default
)

// Sentinel is a master with two replicas, watched by three Sentinels.
type Sentinel struct {
	Data     []*Server
	Watchers []*Server
}

// StartSentinel starts one that ends with the test. The options are for the data servers.
func StartSentinel(t TB, opts ...Option) *Sentinel {
	t.Helper()
	s := new(Sentinel)
	master := Start(t, opts...)
	s.Data = append(s.Data, master)
	for range 2 {
		replica := Start(t, append(append([]Option{}, opts...), ReplicaOf(master))...)
		s.Data = append(s.Data, replica)
	}
	for _, replica := range s.Data[1:] {
		replica.WaitReplicated(t)
	}
	for range 3 {
		s.Watchers = append(s.Watchers, Start(t, watching(master)))
	}
	err := poll(readyBound, func() error {
		for _, w := range s.Watchers {
			if err := s.sees(w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("redistest: the Sentinels do not find each other: %v", err)
	}
	s.debug(t, "TILT-TRIGGER", hour, "INFO-PERIOD", infoPeriod)
	return s
}

// watching is the configuration of one Sentinel.
func watching(master *Server) Option {
	return func(c *config) {
		c.conf = fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\nsentinel down-after-milliseconds %[1]s %[3]d\n"+
			"sentinel failover-timeout %[1]s 5000\nsentinel parallel-syncs %[1]s 2\n", sentinelMaster, master.port, DownAfter.Milliseconds())
	}
}

// writeConf writes the file that a Sentinel begins with.
func (s *Server) writeConf() error {
	path := filepath.Join(s.dir, sentinelConf)
	if _, err := os.Stat(path); s.config.conf == "" || err == nil && s.confPort() == s.port {
		return nil // it goes on with what it has learned
	}
	conf := fmt.Sprintf("port %d\nbind 127.0.0.1\nprotected-mode no\ndir %s\n%s", s.port, s.dir, s.config.conf)
	return os.WriteFile(path, []byte(conf), 0o600)
}

// confPort is the port that the file names.
func (s *Server) confPort() int {
	text, err := os.ReadFile(filepath.Join(s.dir, sentinelConf))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "port "); found {
			port, _ := strconv.Atoi(strings.TrimSpace(rest))
			return port
		}
	}
	return 0
}

// sees is nil when a Sentinel knows the two others and both replicas.
func (s *Sentinel) sees(w *Server) error {
	return s.ask(w, func(ctx context.Context, c *redis.SentinelClient) error {
		state, err := c.Master(ctx, sentinelMaster).Result()
		if err != nil {
			return err
		}
		if state["num-other-sentinels"] != "2" || state["num-slaves"] != "2" {
			return fmt.Errorf("it knows %s Sentinels and %s replicas", state["num-other-sentinels"], state["num-slaves"])
		}
		return nil
	})
}

func (s *Sentinel) ask(w *Server, fn func(context.Context, *redis.SentinelClient) error) error {
	client := redis.NewSentinelClient(&redis.Options{Addr: w.Addr(), MaxRetries: -1, ReadTimeout: adminBound})
	ctx, cancel := context.WithTimeout(context.Background(), adminBound)
	defer cancel()
	return errors.Join(fn(ctx, client), client.Close())
}

// Options returns new options of a client that asks the Sentinels for the master.
func (s *Sentinel) Options() *redis.FailoverOptions {
	o := &redis.FailoverOptions{MasterName: sentinelMaster}
	for _, w := range s.Watchers {
		o.SentinelAddrs = append(o.SentinelAddrs, w.Addr())
	}
	return o
}

// Master is the server that most Sentinels call the master now; nil if they do not agree.
func (s *Sentinel) Master() *Server {
	votes := map[string]int{}
	for _, w := range s.Watchers {
		_ = s.ask(w, func(ctx context.Context, c *redis.SentinelClient) error {
			addr, err := c.GetMasterAddrByName(ctx, sentinelMaster).Result()
			if err == nil && len(addr) == 2 {
				votes[addr[0]+":"+addr[1]]++
			}
			return err
		})
	}
	for _, server := range s.Data {
		if votes[server.Addr()] >= 2 {
			return server
		}
	}
	return nil
}

// failoverBound is longer than a Sentinel takes to give a failover up, by the time-out in its
// configuration.
const failoverBound = 12 * time.Second

// Failover asks for a failover and returns the new master. It asks again if that comes to
// nothing: another Sentinel may take the promoted replica for a stray and tell it to follow again,
// and then the first one gives up.
func (s *Sentinel) Failover(t TB) (master *Server) {
	t.Helper()
	old := s.Master()
	var asked time.Time
	err := poll(2*readyBound, func() (err error) {
		if master, err = s.other(old); err == nil || time.Since(asked) < failoverBound {
			return err
		}
		refused := s.ask(s.Watchers[0], func(ctx context.Context, c *redis.SentinelClient) error {
			return c.Failover(ctx, sentinelMaster).Err()
		})
		if refused != nil { // while no replica is good enough, or another failover is on
			return refused
		}
		asked = time.Now()
		return err
	})
	if err != nil {
		t.Fatalf("redistest: SENTINEL FAILOVER: %v", err)
	}
	return master
}

// AwaitMaster returns when the Sentinels agree on a master that is another than old, and that it is
// one.
func (s *Sentinel) AwaitMaster(t TB, old *Server) (master *Server) {
	t.Helper()
	err := poll(2*readyBound, func() (err error) {
		master, err = s.other(old)
		return err
	})
	if err != nil {
		t.Fatalf("redistest: no failover: %v", err)
	}
	return master
}

// other is the master that the Sentinels agree on, if it is another than old and knows it.
func (s *Sentinel) other(old *Server) (*Server, error) {
	master := s.Master()
	if master == nil || master == old {
		return nil, errors.New("there is no other master yet")
	}
	info, err := master.info("replication")
	if err == nil && info["role"] != "master" {
		err = fmt.Errorf("its role is %q", info["role"])
	}
	return master, err
}

// Settle returns when the master has both replicas, so that another failover is possible.
func (s *Sentinel) Settle(t TB) {
	t.Helper()
	err := poll(2*readyBound, func() error {
		master := s.Master()
		if master == nil {
			return errors.New("there is no master")
		}
		info, err := master.info("replication")
		if err == nil && (info["role"] != "master" || info["connected_slaves"] != "2") {
			err = fmt.Errorf("role %q, %s replicas", info["role"], info["connected_slaves"])
		}
		return err
	})
	if err != nil {
		t.Fatalf("redistest: the replicas do not come back: %v", err)
	}
}
