//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

// adminBound bounds one administrative command.
const adminBound = 30 * time.Second

// Kill kills the server with SIGKILL and returns when it is gone: connections are reset, new ones
// refused.
func (s *Server) Kill(t TB) {
	t.Helper()
	s.must(t, "kill", s.withProcess(func(p *process) error { return p.kill() }))
}

// Stop stops the server gracefully, a paused one too, and returns when it is gone.
func (s *Server) Stop(t TB) {
	t.Helper()
	s.must(t, "stop", s.withProcess(func(p *process) error { return p.stop(stopGrace) }))
}

// Start starts the server again after Kill or Stop, on the same port and with the same options. It
// returns when the server answers. ConfigSet is forgotten; data come back with [Persist] only.
func (s *Server) Start(t TB) {
	t.Helper()
	s.must(t, "start", s.start())
}

// Restart is Stop and Start.
func (s *Server) Restart(t TB) {
	t.Helper()
	s.Stop(t)
	s.Start(t)
}

// Pause freezes the server with SIGSTOP: connections stay, the kernel still accepts new ones and
// takes in requests, nobody answers. It returns when the server stands still.
func (s *Server) Pause(t TB) {
	t.Helper()
	s.must(t, "pause", s.withProcess(func(p *process) error {
		s.setPaused(true)
		return p.pause()
	}))
}

// Resume ends Pause. The server then answers everything that was sent meanwhile.
func (s *Server) Resume(t TB) {
	t.Helper()
	s.must(t, "resume", s.withProcess(func(p *process) error {
		s.setPaused(false)
		return p.resume()
	}))
}

// ConfigSet changes a setting of the running server.
func (s *Server) ConfigSet(t TB, key, value string) {
	t.Helper()
	s.must(t, "config set "+key, s.admin(func(ctx context.Context, c *redis.Client) error {
		return c.ConfigSet(ctx, key, value).Err()
	}))
}

// Info returns what INFO says about the sections, by field.
func (s *Server) Info(t TB, sections ...string) map[string]string {
	t.Helper()
	info, err := s.info(sections...)
	s.must(t, "info", err)
	return info
}

// WaitUptime returns when INFO says that the server is at least so many seconds old. It is up to
// one second younger then: Redis rounds both the start and the time of now down to whole seconds.
func (s *Server) WaitUptime(t TB, seconds int) {
	t.Helper()
	bound := time.Duration(seconds)*time.Second + readyBound
	s.must(t, "wait for uptime", poll(bound, func() error {
		info, err := s.info("server")
		if err != nil {
			return err
		}
		up, err := strconv.Atoi(info["uptime_in_seconds"])
		if err != nil {
			return final{err}
		}
		if up < seconds {
			return fmt.Errorf("uptime is %d s", up)
		}
		return nil
	}))
}

func (s *Server) info(sections ...string) (map[string]string, error) {
	info := make(map[string]string)
	err := s.admin(func(ctx context.Context, c *redis.Client) error {
		text, err := c.Info(ctx, sections...).Result()
		for line := range strings.Lines(text) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[key] = value
			}
		}
		return err
	})
	return info, err
}

// admin runs fn with a connection of its own, which no fault of a test's client touches.
func (s *Server) admin(fn func(context.Context, *redis.Client) error) error {
	opts := s.Options()
	opts.MaxRetries, opts.PoolSize = -1, 1
	clientopts.Set(opts, "DialerRetries", 1)
	opts.DialTimeout, opts.ReadTimeout, opts.ContextTimeoutEnabled = adminBound, adminBound, true
	client := redis.NewClient(opts)
	ctx, cancel := context.WithTimeout(context.Background(), adminBound)
	defer cancel()
	return errors.Join(fn(ctx, client), client.Close())
}

func (s *Server) withProcess(fn func(*process) error) error {
	s.mu.Lock()
	proc := s.proc
	s.mu.Unlock()
	if proc.ended() {
		return errNotRunning
	}
	return fn(proc)
}

func (s *Server) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
}

func (s *Server) must(t TB, verb string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("redistest: %s server %s: %v", verb, s.Addr(), err)
	}
}
