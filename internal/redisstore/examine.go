package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/store"
)

// How much an examination asks.
const (
	clockSamples = 8                      // readings of Redis's clock at its begin, and as many at its end
	clockApart   = 500 * time.Millisecond // between the two
	scanPages    = 20                     // of 500 keys: neighbours are looked for among the first of them only
)

// examined are the settings that an examination reads.
var examined = []string{
	"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag", "cluster-node-timeout",
}

// examination gathers facts over one connection after the other.
type examination struct {
	lease   *Lease
	master  *Store // the server that the scripts run on
	bounded store.Bounded
	facts   store.Facts
}

// process is that of the server that is examined.
func (e *examination) process(ctx context.Context, cmd redis.Cmder) error {
	return e.bounded(ctx, func(ctx context.Context) error { return e.master.process(ctx, cmd) })
}

// Examine finds out what the Redis is like that is to hold this lease. All that it sends only
// reads, but for one message to a channel that nobody listens on. It returns when ctx is done at
// the latest, with what it knows then, if each call does.
func (s *Lease) Examine(ctx context.Context, bounded store.Bounded) store.Facts {
	e := examination{lease: s, bounded: bounded, facts: store.Facts{
		Client: s.given.clientFacts(), Settings: map[string]string{}, Refused: map[string]error{},
	}}
	at := *s.Store
	if !e.allowed(store.ProbePing, bounded(ctx, func(ctx context.Context) error {
		return recovering(func() (err error) {
			at.rdb, err = s.masterFor(ctx, s.key)
			return err
		})
	})) {
		return e.facts
	}
	e.master = &at
	switch err := e.process(ctx, redis.NewStatusCmd(ctx, "ping")); {
	case redis.HasErrorPrefix(err, "MISCONF"): // Redis answers reads: there is more to find out
		_ = e.allowed(store.ProbeWrite, err)
	case !e.allowed(store.ProbePing, err):
		return e.facts
	}
	first, able := e.readClock(ctx)
	e.probe(ctx)
	e.neighbours(ctx)
	if able {
		select {
		case <-time.After(clockApart):
			e.clock(ctx, first)
		case <-ctx.Done():
		}
	}
	slices.Sort(e.facts.RoundTrips)
	return e.facts
}

// allowed notes what was refused, and reports whether it was not.
func (e *examination) allowed(probe string, err error) bool {
	if err == nil || e.facts.Refused[probe] != nil {
		return err == nil
	}
	if _, explained := store.AsType[*store.Error](err); !explained {
		err = e.lease.explain(probe, err)
	}
	e.facts.Refused[probe] = err
	return false
}

// probe tries what an election does, and reads what Redis says of itself.
func (e *examination) probe(ctx context.Context) {
	_ = e.allowed(store.ProbeScripts, e.bounded(ctx, func(ctx context.Context) error {
		_, err := e.lease.Leader(ctx)
		return err
	}))
	sc, origin := e.lease.scripts.witness, ""
	if e.allowed(store.ProbeScripts, e.bounded(ctx, func(ctx context.Context) (err error) {
		origin, err = e.lease.text(ctx, sc, append(sc.args("1", 1), e.lease.key))
		return err
	})) {
		e.facts.Witness = origin != "-"
	}
	keys := e.lease.Store.keys
	err := e.bounded(ctx, func(ctx context.Context) error { // keys that need not exist, as scripts ask for them
		_, _, err := e.lease.losses(ctx, keys.Hold(), keys.Lost())
		return err
	})
	if redis.HasErrorPrefix(err, "TRYAGAIN") {
		_ = e.allowed(store.ProbeScripts, err)
	}
	info := redis.NewStringCmd(ctx, "info")
	if e.allowed(store.ProbeInfo, e.process(ctx, info)) {
		readInfo(&e.facts, info.Val())
	}
	for _, setting := range examined {
		config := redis.NewMapStringStringCmd(ctx, "config", "get", setting)
		if !e.allowed(store.ProbeConfig, e.process(ctx, config)) {
			break
		}
		if value, ok := config.Val()[setting]; ok {
			e.facts.Settings[setting] = value
		}
	}
	_ = e.allowed(store.ProbePublish, e.bounded(ctx, func(ctx context.Context) error {
		return e.lease.publish(ctx, e.lease.Store.keys.Own(e.lease.secret()), "examined")
	}))
	_ = e.allowed(store.ProbeSubscribe, e.bounded(ctx, e.subscribe))
}

// subscribe tries the channels of hints, over the client that was given, as they are subscribed to.
func (e *examination) subscribe(ctx context.Context) error {
	pubsub, err := e.lease.given.subscriber(ctx, e.lease.key)
	if err != nil {
		return e.lease.explain(store.ProbeSubscribe, err)
	}
	defer func() { _ = recovering(pubsub.Close) }()
	channels := []string{store.LeaseEvents(e.lease.key), e.lease.Store.keys.Events()}
	err = recovering(func() error {
		if err := pubsub.Subscribe(ctx, channels...); err != nil {
			return err
		}
		_, err := pubsub.ReceiveTimeout(ctx, 2*time.Second)
		return err
	})
	if err != nil {
		return explainChannels("SUBSCRIBE", "+subscribe", err, channels)
	}
	return nil
}

// reading is Redis's clock and ours at one instant, as well as that can be known.
type reading struct {
	offset time.Duration // of Redis's clock to our wall clock
	trip   time.Duration // of the request that read it
	at     time.Time
}

// readClock keeps the reading of the shortest round trip: half of that is how far off it may be.
func (e *examination) readClock(ctx context.Context) (best reading, able bool) {
	for range clockSamples {
		cmd := redis.NewTimeCmd(ctx, "time")
		sent := time.Now()
		if !e.allowed(store.ProbePing, e.process(ctx, cmd)) {
			return best, able
		}
		trip := time.Since(sent)
		e.facts.RoundTrips = append(e.facts.RoundTrips, trip)
		if !able || trip < best.trip {
			middle := sent.Add(trip / 2)
			best, able = reading{offset: cmd.Val().Sub(middle.Round(0)), trip: trip, at: middle}, true
		}
	}
	return best, able
}

// clock compares two readings: the clocks run at different rates if they have drifted apart.
func (e *examination) clock(ctx context.Context, first reading) {
	second, able := e.readClock(ctx)
	if !able {
		return
	}
	passed := second.at.Sub(first.at).Seconds()
	best := first
	if second.trip < best.trip {
		best = second
	}
	e.facts.Offset, e.facts.OffsetError = best.offset, best.trip/2
	e.facts.Rate = (second.offset - first.offset).Seconds() / passed
	e.facts.RateError = (first.trip + second.trip).Seconds() / 2 / passed
}

// neighbours looks for namespaces of which one begins with the other's name: whoever may use the
// shorter one's keys may use the longer one's.
func (e *examination) neighbours(ctx context.Context) {
	namespace := string(e.lease.Store.keys)
	seen := map[string]bool{}
	for i, c := range namespace {
		if c != ':' {
			continue
		}
		there := redis.NewIntCmd(ctx, "exists", store.Keys(namespace[:i]).Instances())
		if e.allowed(store.ProbeScan, e.process(ctx, there)) && there.Val() > 0 {
			seen[namespace[:i]] = true
		}
	}
	for page, cursor := 0, uint64(0); page < scanPages; page++ {
		scan := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", namespace+":*:instances", "count", 500)
		if !e.allowed(store.ProbeScan, e.process(ctx, scan)) {
			break
		}
		keys, next := scan.Val()
		for _, key := range keys {
			seen[strings.TrimSuffix(key, ":instances")] = true
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	for neighbour := range seen {
		e.facts.Neighbours = append(e.facts.Neighbours, neighbour)
	}
	slices.Sort(e.facts.Neighbours)
}

// Server asks what the server is: in a cluster, any of them.
func (s *Store) Server(ctx context.Context) (server store.Server, err error) {
	cmd := redis.NewStringCmd(ctx, "info", "server")
	if err := s.process(ctx, cmd); err != nil {
		return server, s.explain("INFO", err)
	}
	f := store.Facts{Settings: make(map[string]string)}
	readInfo(&f, cmd.Val())
	server = store.Server{Kind: "redis", Version: bounded(f.Version), Uptime: f.Uptime}
	switch {
	case f.Valkey != "":
		server.Kind, server.Version = "valkey", bounded(f.Valkey)
	case f.Version == "":
		server.Kind = ""
	}
	return server, nil
}

// readInfo takes from INFO what matters.
func readInfo(f *store.Facts, info string) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version":
			f.Version = value
		case "valkey_version":
			f.Valkey = value
		case "role":
			f.Role = value
			f.Several = f.Several || value == "active-replica" // of KeyDB
		case "crdt_replid", "crdt_config_version": // of Active-Active databases of Redis Software and Redis Cloud
			f.Several = true
		case "redis_mode":
			f.Cluster = value == "cluster"
		case "connected_slaves":
			n, err := strconv.Atoi(value)
			f.Replicas, f.Replication = n, err == nil
		case "min_slaves_good_slaves":
			n, err := strconv.Atoi(value)
			f.InSync, f.Counted = n, err == nil
		case "used_memory":
			used, _ := strconv.ParseInt(value, 10, 64)
			f.Used += used
		case "mem_not_counted_for_evict": // what waits for replicas that lag, and for the append-only file
			exempt, _ := strconv.ParseInt(value, 10, 64)
			f.Used -= exempt
		case "uptime_in_seconds":
			seconds, _ := strconv.ParseInt(value, 10, 32)
			f.Uptime = time.Duration(seconds) * time.Second
		case "maxmemory", "maxmemory_policy":
			f.Settings[strings.ReplaceAll(name, "_", "-")] = value
		case "aof_enabled":
			f.Settings["appendonly"] = map[string]string{"1": "yes", "0": "no"}[value]
		}
	}
}

// clientFacts are the settings of the client.
func (s *Store) clientFacts() store.ClientFacts {
	switch client := s.rdb.(type) {
	case *redis.Client:
		o := client.Options()
		return store.ClientFacts{Kind: "single", ReadTimeout: o.ReadTimeout, DialTimeout: o.DialTimeout, PoolSize: o.PoolSize}
	case *redis.ClusterClient:
		o := client.Options()
		return store.ClientFacts{
			Kind: "cluster", ReadTimeout: o.ReadTimeout, DialTimeout: o.DialTimeout, PoolSize: o.PoolSize,
			FromReplicas: o.ReadOnly || o.RouteByLatency || o.RouteRandomly,
		}
	}
	return store.ClientFacts{Kind: "other"}
}
