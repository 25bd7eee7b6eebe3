//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Promote makes a replica a master (REPLICAOF NO ONE) and returns when it is one. It stays one
// through restarts.
func (s *Server) Promote(t TB) {
	t.Helper()
	s.setMaster(nil, false)
	s.must(t, "promote", s.replicate("NO", "ONE"))
	s.must(t, "promote", poll(readyBound, func() error {
		info, err := s.info("replication")
		if err == nil && info["role"] != "master" {
			err = fmt.Errorf("role is %q", info["role"])
		}
		return err
	}))
}

// Detach has a replica receive nothing more, without making it a master: it is told to follow an
// address that refuses connections. It still answers reads and still refuses writes. Whatever the
// master is told from now on is lost by a later Promote. It returns when the link is down.
func (s *Server) Detach(t TB) {
	t.Helper()
	s.must(t, "detach", s.mustBeReplica())
	s.setMaster(s.followed(), true)
	s.must(t, "detach", s.replicate(refusingHost, refusingPort))
	s.must(t, "detach", poll(readyBound, func() error {
		info, err := s.info("replication")
		down := info["role"] == "slave" && info["master_port"] == refusingPort && info["master_link_status"] == "down"
		if err == nil && !down {
			err = fmt.Errorf("replication is %v", info)
		}
		return err
	}))
}

// Follow makes the server a replica of master: a new one, a deposed master, or the end of Detach.
// What it holds and master does not is lost; see [Server.WaitReplicated].
func (s *Server) Follow(t TB, master *Server) {
	t.Helper()
	s.setMaster(master, false)
	s.must(t, "follow", s.replicate("127.0.0.1", strconv.Itoa(master.port)))
}

// WaitReplicated returns when a replica holds everything that its master held at the time of the
// call.
func (s *Server) WaitReplicated(t TB) {
	t.Helper()
	s.must(t, "replicate", s.mustBeReplica())
	master := s.followed()
	want := int64(-1)
	s.must(t, "replicate", poll(readyBound, func() error {
		source, err := master.info("replication")
		if err != nil {
			return err
		}
		if want < 0 {
			if want, err = strconv.ParseInt(source["master_repl_offset"], 10, 64); err != nil {
				return final{err}
			}
		}
		info, err := s.info("replication")
		if err != nil {
			return err
		}
		// The field is missing before the first synchronisation: offset 0 then, and the link is not
		// up.
		offset, _ := strconv.ParseInt(info["slave_repl_offset"], 10, 64)
		held := info["master_link_status"] == "up" && info["master_replid"] == source["master_replid"] && offset >= want
		if !held {
			return fmt.Errorf("master is at %d, replication is %v", want, info)
		}
		return nil
	}))
}

func (s *Server) replicate(host, port string) error {
	return s.admin(func(ctx context.Context, c *redis.Client) error { return c.SlaveOf(ctx, host, port).Err() })
}

func (s *Server) setMaster(master *Server, detached bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master, s.detached = master, detached
}

func (s *Server) followed() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.master
}

func (s *Server) mustBeReplica() error {
	if s.followed() == nil {
		return errors.New("not a replica")
	}
	return nil
}

// replicaOf returns what a start of the server is to follow.
func (s *Server) replicaOf() (host, port string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.master == nil:
		return "", "", false
	case s.detached:
		return refusingHost, refusingPort, true
	default:
		return "127.0.0.1", strconv.Itoa(s.master.port), true
	}
}
