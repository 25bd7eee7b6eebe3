package store

import (
	"context"
	"time"
)

// Facts are what an examination has found out about a Redis and the client that speaks to it. What
// could not be found out has its zero value, and Refused says why.
type Facts struct {
	Client  ClientFacts
	Version string // of the server, as redis_version of INFO has it; "": not known
	Valkey  string // its own version, if it is one
	Role    string // master, or slave: the server that the scripts run on
	Cluster bool
	Several bool // it is one of several masters of the same keys
	Uptime  time.Duration
	// Settings are those of CONFIG GET that matter, and of INFO. A managed offering refuses the
	// command as a rule.
	Settings    map[string]string
	Replication bool // INFO says how many replicas there are; else Replicas and InSync are not known
	Replicas    int
	Witness     bool  // INFO tells scripts the replication id, whatever it tells clients
	Counted     bool  // INFO says how many of those are in step, which it does if min-replicas-to-write is on
	InSync      int   // so many
	Used        int64 // bytes that count for maxmemory
	// RoundTrips are those of single requests over a connection that stands, the shortest first.
	RoundTrips []time.Duration
	// Offset is by how much Redis's clock is ahead of this machine's, and Rate by how much faster
	// it runs, as a part of one; OffsetError and RateError are how far off they may be.
	Offset, OffsetError time.Duration
	Rate, RateError     float64
	// Neighbours are other namespaces of which one is the beginning of the other's name.
	Neighbours []string
	// Refused are the errors by what was tried: the words of Probes.
	Refused map[string]error
}

// Bounded makes a call, and returns when ctx is done at the latest: the call may ignore that.
type Bounded func(ctx context.Context, call func(ctx context.Context) error) error

// Server is what a Redis says of itself. What it does not say has its zero value.
type Server struct {
	Kind    string // redis or valkey
	Version string
	Uptime  time.Duration // in whole seconds
}

// ClientFacts are the settings of the client.
type ClientFacts struct {
	Kind         string // single, cluster, other
	ReadTimeout  time.Duration
	DialTimeout  time.Duration
	PoolSize     int
	FromReplicas bool
}

// What an examination tries.
const (
	ProbePing      = "ping"
	ProbeWrite     = "write" // by what PING says of writes
	ProbeScripts   = "scripts"
	ProbeInfo      = "info"
	ProbeConfig    = "config"
	ProbePublish   = "publish"
	ProbeSubscribe = "subscribe"
	ProbeScan      = "scan"
)
