package simnet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
)

// SetInfo switches INFO server and INFO replication on (the default) or off for the commands and
// scripts of host. Off, they answer miniredis's own error, as a server would that refuses them.
func (s *Server) SetInfo(host string, on bool) {
	s.exec.Lock()
	defer s.exec.Unlock()
	s.noInfo[host] = !on
}

// ReplicationID is master_replid, which changes with each history.
func (s *Server) ReplicationID() string {
	s.exec.Lock()
	defer s.exec.Unlock()
	return s.replid
}

// hook runs before each command, those that scripts call included; exec is held, and within scripts
// miniredis's lock too.
func (s *Server) hook(peer *server.Peer, cmd string, args ...string) bool {
	if s.intercept != nil && s.client != "" {
		if refusal := s.intercept(s.client, cmd, args); refusal != "" {
			peer.WriteError(refusal)
			return true
		}
	}
	if s.watch != nil && s.client != "" {
		s.watch(s.clock.now(), s.client, cmd, args)
	}
	switch cmd {
	case "INFO":
		if text := s.info(args); text != "" && !s.noInfo[s.client] {
			peer.WriteBulk(text)
			return true
		}
	case "BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX":
		peer.WriteError("ERR simnet: a blocking command would stop the server")
		return true
	case "XREAD", "XREADGROUP":
		if slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a, "BLOCK") }) {
			peer.WriteError("ERR simnet: a blocking command would stop the server")
			return true
		}
	}
	return false
}

// info answers the sections server and replication in Redis's format, and "" to any other.
func (s *Server) info(sections []string) string {
	var parts []string
	for _, section := range sections {
		switch strings.ToLower(section) {
		case "server":
			// Redis subtracts whole seconds of its wall clock: it may be a second off, and moves
			// with a clock step.
			uptime := s.clock.now().Unix() - s.born.Unix()
			parts = append(parts, fmt.Sprintf("# Server\r\nredis_version:7.4.2\r\nredis_mode:standalone\r\n"+
				"uptime_in_seconds:%d\r\nuptime_in_days:%d\r\n", uptime, uptime/86400))
		case "replication":
			replid2, offset2 := s.replid2, s.offset2
			if replid2 == "" {
				replid2, offset2 = strings.Repeat("0", 40), -1
			}
			parts = append(parts, fmt.Sprintf("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"+
				"master_failover_state:no-failover\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\nmaster_repl_offset:%d\r\n"+
				"second_repl_offset:%d\r\n", s.replid, replid2, s.offset, offset2))
		default:
			return ""
		}
	}
	return strings.Join(parts, "\r\n")
}

// newReplid is 40 hexadecimal digits, from the seed.
func (s *Server) newReplid() string {
	return fmt.Sprintf("%016x%016x%08x", s.rand.Uint64(), s.rand.Uint64(), s.rand.Uint32())
}
