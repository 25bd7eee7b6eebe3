package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"
)

// The ports of a node of a LAN.
const (
	lanRedisPort    = 6379
	lanSentinelPort = 26379
)

// LANSentinel is Sentinel as it is deployed on three machines: each has a Redis and a Sentinel, the
// first begins as the master.
type LANSentinel struct {
	*LAN
	Machines []string
}

// StartSentinel starts one on three nodes. The arguments are for the data servers.
func (l *LAN) StartSentinel(t TB, machines []string, args ...string) *LANSentinel {
	t.Helper()
	binary, dir := lanServer(t)
	master := l.Addr(machines[0])
	for i, machine := range machines {
		data := filepath.Join(dir, machine)
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatalf("redistest: %v", err)
		}
		serve := []string{
			"--bind", "0.0.0.0", "--protected-mode", "no", "--port", fmt.Sprint(lanRedisPort), "--save", "", "--dir", data,
			"--repl-diskless-sync-delay", "0", "--repl-timeout", "5", "--repl-ping-replica-period", "1",
		}
		if i > 0 {
			serve = append(serve, "--replicaof", master, fmt.Sprint(lanRedisPort))
		}
		l.nodes[machine].run(t, lanRedisPort, binary, append(serve, args...)...)
	}
	for _, machine := range machines {
		conf := filepath.Join(dir, machine+".conf")
		text := fmt.Sprintf("port %[3]d\nbind 0.0.0.0\nprotected-mode no\ndir %[4]s\nsentinel monitor %[1]s %[2]s %[5]d 2\n"+
			"sentinel down-after-milliseconds %[1]s %[6]d\nsentinel failover-timeout %[1]s 5000\nsentinel parallel-syncs %[1]s 2\n",
			sentinelMaster, master, lanSentinelPort, dir, lanRedisPort, DownAfter.Milliseconds())
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatalf("redistest: %v", err)
		}
		l.nodes[machine].run(t, lanSentinelPort, binary, conf, "--sentinel")
	}
	s := &LANSentinel{LAN: l, Machines: machines}
	s.await(t, "the Sentinels to find each other and both replicas", func() error {
		for _, machine := range machines {
			err := s.ask(machine, func(ctx context.Context, c *redis.SentinelClient) error {
				state, err := c.Master(ctx, sentinelMaster).Result()
				if err == nil && (state["num-other-sentinels"] != "2" || state["num-slaves"] != "2") {
					err = fmt.Errorf("it knows %s Sentinels and %s replicas", state["num-other-sentinels"], state["num-slaves"])
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, machine := range machines {
		_ = s.ask(machine, func(ctx context.Context, c *redis.SentinelClient) error {
			debug := redis.NewStatusCmd(ctx, "SENTINEL", "DEBUG", "TILT-TRIGGER", hour.Milliseconds(), "INFO-PERIOD", infoPeriod.Milliseconds())
			return c.Process(ctx, debug)
		})
	}
	return s
}

func (s *LANSentinel) await(t TB, what string, cond func() error) {
	t.Helper()
	if err := poll(2*readyBound, cond); err != nil {
		t.Fatalf("redistest: waiting for %s: %v", what, err)
	}
}

func (s *LANSentinel) ask(machine string, fn func(context.Context, *redis.SentinelClient) error) error {
	client := redis.NewSentinelClient(&redis.Options{
		Addr: fmt.Sprintf("%s:%d", s.Addr(machine), lanSentinelPort), Dialer: s.Dialer(machine), MaxRetries: -1, ReadTimeout: adminBound,
	})
	ctx, cancel := context.WithTimeout(context.Background(), adminBound)
	defer cancel()
	return errors.Join(fn(ctx, client), client.Close())
}

// Client is a client on a node that asks the Sentinels for the master; it is closed with the test.
func (s *LANSentinel) Client(t TB, node string, changes ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	o := &redis.FailoverOptions{MasterName: sentinelMaster, Dialer: s.Dialer(node)}
	for _, machine := range s.Machines {
		o.SentinelAddrs = append(o.SentinelAddrs, fmt.Sprintf("%s:%d", s.Addr(machine), lanSentinelPort))
	}
	for _, change := range changes {
		change(o)
	}
	client := redis.NewFailoverClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// MasterBy is the machine that the Sentinel of a machine calls the master; "" if it does not
// answer.
func (s *LANSentinel) MasterBy(machine string) (master string) {
	_ = s.ask(machine, func(ctx context.Context, c *redis.SentinelClient) error {
		addr, err := c.GetMasterAddrByName(ctx, sentinelMaster).Result()
		for _, m := range s.Machines {
			if err == nil && addr[0] == s.Addr(m) {
				master = m
			}
		}
		return err
	})
	return master
}
