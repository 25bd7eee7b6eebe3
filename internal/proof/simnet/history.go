package simnet

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Snapshot is a copy of database 0: strings, hashes, sorted sets, sets, lists and streams, with the
// expiry of whole keys (hash fields' own expiry and consumer groups are not kept).
type Snapshot struct {
	At   time.Time // by the server's clock
	keys []record
}

type record struct {
	key, kind string
	expires   time.Time // by the server's clock, as in Redis; zero: never
	values    []string  // string, hash (field, value, …), set, list
	scores    map[string]float64
	entries   []miniredis.StreamEntry
}

// Keys of the snapshot, in order.
func (s *Snapshot) Keys() []string {
	keys := make([]string, len(s.keys))
	for i, r := range s.keys {
		keys[i] = r.key
	}
	return keys
}

// Snapshot copies the data as it is now.
func (s *Server) Snapshot() *Snapshot {
	var snap *Snapshot
	s.Do(func(*miniredis.Miniredis) { snap = s.snapshot() })
	return snap
}

func (s *Server) snapshot() *Snapshot {
	m, snap := s.mini, &Snapshot{At: s.clock.now()}
	for _, key := range m.Keys() {
		r := record{key: key, kind: m.Type(key)}
		if ttl := m.TTL(key); ttl > 0 {
			r.expires = snap.At.Add(ttl)
		}
		switch r.kind {
		case "string":
			value, _ := m.Get(key)
			r.values = []string{value}
		case "hash":
			fields, _ := m.HKeys(key)
			for _, field := range fields {
				r.values = append(r.values, field, m.HGet(key, field))
			}
		case "set":
			r.values, _ = m.SMembers(key)
		case "list":
			r.values, _ = m.List(key)
			r.values = slices.Clone(r.values)
		case "zset":
			scores, _ := m.SortedSet(key)
			r.scores = maps.Clone(scores) // else it goes on with the server
		case "stream":
			r.entries, _ = m.Stream(key)
			r.entries = slices.Clone(r.entries)
		default:
			panic(fmt.Sprintf("simnet: no snapshot of key %q: type %s", key, r.kind))
		}
		snap.keys = append(snap.keys, r)
	}
	return snap
}

// Restore replaces the data by those of a snapshot; what has expired since is left out.
func (s *Server) Restore(snap *Snapshot) {
	s.note("restore", "", int64(len(snap.keys)))
	s.Do(func(*miniredis.Miniredis) { s.restore(snap) })
}

func (s *Server) restore(snap *Snapshot) {
	m, now := s.mini, s.clock.now()
	m.FlushAll()
	for _, r := range snap.keys {
		ttl := r.expires.Sub(now)
		if !r.expires.IsZero() && ttl <= 0 {
			continue
		}
		var err error
		switch r.kind {
		case "string":
			err = m.Set(r.key, r.values[0])
		case "hash":
			m.HSet(r.key, r.values...)
		case "set":
			_, err = m.SAdd(r.key, r.values...)
		case "list":
			_, err = m.Push(r.key, r.values...)
		case "zset":
			for member, score := range r.scores {
				if _, err = m.ZAdd(r.key, score, member); err != nil {
					break
				}
			}
		case "stream":
			for _, e := range r.entries {
				if _, err = m.XAdd(r.key, e.ID, e.Values); err != nil {
					break
				}
			}
		}
		if err != nil {
			panic(fmt.Sprintf("simnet: restore of key %q: %v", r.key, err)) // the database is empty
		}
		if !r.expires.IsZero() {
			m.SetTTL(r.key, ttl)
		}
	}
}

// FlushAll deletes every key. Scripts stay, as in Redis.
func (s *Server) FlushAll() {
	s.note("flushall", "", 0)
	s.Do(func(m *miniredis.Miniredis) { m.FlushAll() })
}

// Del deletes a key as an operator would, and reports whether it was there.
func (s *Server) Del(key string) bool { return s.remove("del", key) }

// Evict deletes a key for want of memory.
func (s *Server) Evict(key string) bool { return s.remove("evict", key) }

func (s *Server) remove(what, key string) (found bool) {
	s.note(what, key, 0)
	s.Do(func(m *miniredis.Miniredis) { found = m.Del(key) })
	return found
}

// ScriptFlush forgets the scripts: EVALSHA answers NOSCRIPT.
func (s *Server) ScriptFlush() {
	s.note("script-flush", "", 0)
	s.Do(func(*miniredis.Miniredis) { s.quietly(nil, "SCRIPT", "FLUSH") })
}

// Pause freezes the server for d: it takes connections and requests, and works them off in order of
// arrival afterwards. Its clock goes on.
func (s *Server) Pause(d time.Duration) {
	s.note("pause", "", int64(d))
	n := s.net
	n.mu.Lock()
	defer n.mu.Unlock()
	until := align(n.Elapsed()+d, s.slot)
	s.paused = max(s.paused, until)
	// Fires once; does nothing after Close.
	time.AfterFunc(until-n.Elapsed(), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		s.work()
	})
}

// Restart ends every connection, refuses new ones for down, and begins a new history: another
// replication ID, no second one, uptime 0, no scripts. With keep the data survive (as with an
// append-only file), but for what expires meanwhile.
func (s *Server) Restart(keep bool, down time.Duration) {
	s.note("restart", fmt.Sprint("keep=", keep), int64(down))
	s.dropAll()
	n := s.net
	n.mu.Lock()
	s.paused = 0
	s.downUntil = align(n.Elapsed()+down, s.slot)
	n.mu.Unlock()
	s.Do(func(m *miniredis.Miniredis) {
		if !keep {
			m.FlushAll()
		}
		s.quietly(nil, "SCRIPT", "FLUSH")
		s.replid, s.replid2, s.offset = s.newReplid(), "", 0
		s.born = s.clock.now().Add(time.Duration(float64(down) * s.clock.rate))
	})
}

// Failover ends every connection; in place of the server there is now a promoted replica that has
// been running for an hour: it holds the data of snap (nil: all), its clock is ahead of the old
// one's by clock, and its second replication ID is the old server's. Nobody remembers the scripts.
func (s *Server) Failover(snap *Snapshot, clock time.Duration) {
	s.note("failover", "", int64(clock))
	s.dropAll()
	s.Do(func(*miniredis.Miniredis) {
		if snap == nil {
			snap = s.snapshot()
		}
		s.clock.at = s.clock.at.Add(clock)
		s.tick()
		s.become(snap, s.replid, s.offset)
	})
}

// Promote is a failover that leaves the old server running for those who are connected to it, as a
// second master that still takes writes: new connections go to the replica that is returned. Stop
// ends the old one.
func (s *Server) Promote(snap *Snapshot, clock time.Duration) *Server {
	s.note("promote", "", int64(clock))
	if snap == nil {
		snap = s.Snapshot()
	}
	s.exec.Lock()
	opts := ServerOptions{Clock: time.Until(s.clock.now()) + clock, Rate: s.clock.rate}
	replid, offset := s.replid, s.offset
	s.exec.Unlock()
	replica := s.net.NewServer(s.addr, opts)
	replica.Do(func(*miniredis.Miniredis) { replica.become(snap, replid, offset) })
	return replica
}

// become makes a promoted replica of s.
func (s *Server) become(snap *Snapshot, replid string, offset int64) {
	s.restore(snap)
	s.quietly(nil, "SCRIPT", "FLUSH")
	s.replid, s.replid2, s.offset, s.offset2 = s.newReplid(), replid, offset, offset+1
	s.born = s.clock.now().Add(-time.Hour)
}

// Stop ends every connection and refuses new ones until Restart.
func (s *Server) Stop() {
	s.note("stop", "", 0)
	s.dropAll()
	s.net.mu.Lock()
	s.downUntil = 1<<63 - 1
	s.net.mu.Unlock()
}

// dropAll hangs up on every connection; what was not executed yet is lost.
func (s *Server) dropAll() {
	s.exec.Lock()
	defer s.exec.Unlock()
	s.net.mu.Lock()
	s.inbox = nil
	conns := slices.Clone(s.conns)
	s.net.mu.Unlock()
	for _, c := range conns {
		s.hangUp(c)
	}
}
