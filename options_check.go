package tenure

import (
	"cmp"
	crand "crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

// checker gathers the problems of a set of options.
type checker struct{ problems optionErrors }

// unquoted is what a value is called that is no text.
type unquoted string

func (c *checker) refuse(field string, value any, reason string, args ...any) {
	text := fmt.Sprint(value)
	switch s := value.(type) {
	case nil:
		text = "nil"
	case string:
		if len(s) > 200 {
			s = s[:200] + "…"
		}
		text = fmt.Sprintf("%q", s)
	}
	c.problems = append(c.problems, &OptionError{Field: field, Value: text, Reason: fmt.Sprintf(reason, args...)})
}

func (c *checker) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	return c.problems
}

// between refuses a duration outside [low, high] and reports whether it lies within.
func (c *checker) between(field string, d, low, high time.Duration) bool {
	if d < low || d > high {
		c.refuse(field, d, "must be between %v and %v", low, high)
		return false
	}
	return true
}

// oneOf fills in the first of the words if there is none, and refuses any other.
func oneOf[T ~string](c *checker, field string, word *T, words ...T) {
	*word = cmp.Or(*word, words[0])
	if !slices.Contains(words, *word) {
		c.refuse(field, string(*word), "must be one of %q", words)
	}
}

// orDefault returns d, or the default if d is zero.
func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

const (
	maxPeriod   = 30 * 24 * time.Hour // of beats, sweeps and silences
	minLeaseTTL = 300 * time.Millisecond

	minRenewInterval = 10 * time.Millisecond
)

// complete fills in the defaults and checks everything.
func (o Options) complete(c *checker) Options {
	c.namespace("Namespace", o.Namespace)
	if o.InstanceID == "" {
		o.InstanceID = defaultInstanceID(os.Getenv("HOSTNAME"), os.Hostname, os.Getpid())
	}
	if !store.IDPattern.MatchString(o.InstanceID) {
		c.refuse("InstanceID", o.InstanceID, "must match %s", store.IDPattern)
	}
	c.segment("InstanceID", o.InstanceID)
	if o.random == nil {
		o.random = rand.Float64
	}
	if o.secret == nil {
		o.secret = nonce
	}
	o.ShutdownTimeout = orDefault(o.ShutdownTimeout, 25*time.Second)
	c.between("ShutdownTimeout", o.ShutdownTimeout, time.Millisecond, lease.MaxTTL)
	o.Election = o.Election.complete(c, "Election.")
	c.leaderKey("Election.", o.Namespace, o.Election.LeaderKey)
	if e := o.Election; o.NoDefaultRole && (e.Role != "" || len(e.Lead) > 0 || e.Health != nil) {
		c.refuse("NoDefaultRole", true, "must not be set beside Election.Role, Election.Lead or Election.Health: they are of the default role")
	}
	o.Registry = o.Registry.complete(c, "Registry.")
	o.Tasks = o.Tasks.complete(c, "Tasks.")
	return o
}

// namespace refuses what is not a key prefix. There is no default: two services that both forgot
// theirs would elect one leader between them.
func (c *checker) namespace(field, name string) {
	if name == "" && field == "Namespace" {
		c.refuse(field, name, "must be set: use the name of the service, such as %q (on a Redis Cluster %q); "+
			"services that share a Redis and a namespace elect one leader between them", "shop", "{shop}")
		return
	}
	if !store.IsKey(name) {
		c.refuse(field, name, "must match %s, with at most one {hash tag}", store.IDPattern)
	}
	if field != "Namespace" {
		return // a LeaderKey may be a key of another namespace: it is for sharing one
	}
	parts := strings.Split(name, ":")
	for i, part := range parts[1:] {
		if part == "leader" || part == "task" || part == "instance" {
			c.refuse(field, name, "must not have %q between colons: its keys could be those of a role, task or instance of Namespace %q",
				part, strings.Join(parts[:i+1], ":"))
			return
		}
	}
}

// segment refuses a name that could not stand in the path of a URL, as those of instances and tasks
// do.
func (c *checker) segment(field, name string) {
	if store.IsDots(name) {
		c.refuse(field, name, "must be neither %q nor %q: it could not stand in the path of a URL", ".", "..")
	}
}

// client refuses one that cannot serve.
func (c *checker) client(rdb redis.UniversalClient) {
	missing := rdb == nil
	switch client := rdb.(type) {
	case *redis.Client:
		missing = client == nil
	case *redis.ClusterClient:
		missing = client == nil
	case *redis.Ring:
		c.refuse("rdb", unquoted("*redis.Ring"), "cannot be used: its shards do not know of each other's leases; use *redis.Client or *redis.ClusterClient")
	}
	if missing {
		c.refuse("rdb", nil, "must be a go-redis client; without Redis use NewStandalone")
	}
}

// tagged refuses a name that a Redis Cluster would scatter over its slots.
func (c *checker) tagged(field, name string) {
	if name != "" && !store.TagPattern.MatchString(name) { // that it is missing is said already
		c.refuse(field, name, "needs a {hash tag} on a Redis Cluster, and with any client but a *redis.Client, so that its keys share a slot: %q",
			"{"+name+"}")
	}
}

// newRedisStore checks that the client can serve the options.
func newRedisStore(rdb redis.UniversalClient, c *checker, opts Options) *redisstore.Store {
	c.client(rdb)
	s := redisstore.New(rdb, contract(), opts.Namespace, opts.InstanceID, opts.secret)
	if s.IsSpread() {
		c.tagged("Namespace", opts.Namespace)
		c.spreadElection("Election.", opts.Election)
	}
	return s
}

func defaultInstanceID(env string, hostname func() (string, error), pid int) string {
	if env != "" {
		return env
	}
	if host, err := hostname(); err == nil && store.IDPattern.MatchString(host) {
		return fmt.Sprintf("%s-%d", host, pid)
	}
	return fmt.Sprintf("unknown-%d", pid)
}

// nonce is the secret of a campaign: 128 random bits.
func nonce() string {
	var bits [16]byte
	_, _ = crand.Read(bits[:]) // never fails
	return hex.EncodeToString(bits[:])
}

// mostPriority is the highest priority, and its negative the lowest.
const mostPriority = 1000

func (o ElectionOptions) complete(c *checker, prefix string) ElectionOptions {
	o.Lead = slices.Clone(o.Lead) // the caller may go on with its own
	if o.Role != "" && !store.IsRole(o.Role) {
		c.refuse(prefix+"Role", o.Role, "must match %s and be none of %q", store.RolePattern, store.ReservedRoles)
	}
	if o.LeaderKey != "" {
		c.namespace(prefix+"LeaderKey", o.LeaderKey)
	}
	for i, work := range o.Lead {
		if work == nil {
			c.refuse(fmt.Sprintf("%sLead[%d]", prefix, i), nil, "must be a function")
		}
	}
	if o.Priority < -mostPriority || o.Priority > mostPriority {
		c.refuse(prefix+"Priority", o.Priority, "must be between %d and %d", -mostPriority, mostPriority)
	}
	o.Safety = o.Safety.complete(c, prefix+"Safety.")
	o.LeaseTTL = orDefault(o.LeaseTTL, 30*time.Second)
	if !c.between(prefix+"LeaseTTL", o.LeaseTTL, minLeaseTTL, lease.MaxTTL) {
		return o // the rest are relations to it
	}
	if o.LeaseTTL%time.Millisecond != 0 {
		c.refuse(prefix+"LeaseTTL", o.LeaseTTL, "must be whole milliseconds")
	}
	o.RenewInterval = orDefault(o.RenewInterval, o.LeaseTTL/3)
	o.RetryInterval = orDefault(o.RetryInterval, o.LeaseTTL/2)
	if o.Spread && o.Preempt == 0 {
		o.Preempt = 2 * o.LeaseTTL
	}
	if o.Preempt != 0 && o.Preempt < 2*o.LeaseTTL {
		c.refuse(prefix+"Preempt", o.Preempt, "must be zero (a better candidate waits), or at least 2 · LeaseTTL = %v", 2*o.LeaseTTL)
	}
	o.Safety.DriftMargin = orDefault(o.Safety.DriftMargin, lease.DefaultDrift(o.LeaseTTL))
	t := o.timing()
	longest := ((t.Life() - t.Guard()) / 2 / 11 * 10).Truncate(time.Millisecond) // renewals come up to a tenth late
	if o.RenewInterval < minRenewInterval || o.RenewInterval > longest {
		c.refuse(prefix+"RenewInterval", o.RenewInterval, "must be between %v and %v with LeaseTTL = %v and DriftMargin = %v: "+
			"two renewals must fit before the term would be cancelled", minRenewInterval, longest, o.LeaseTTL, t.Drift)
	}
	sane := o.RenewInterval > 0 && o.RenewInterval <= o.LeaseTTL
	if m := o.Safety.FailoverMargin; sane && m > 0 && m >= o.LeaseTTL-o.RenewInterval-t.Attempt() {
		c.refuse(prefix+"Safety.FailoverMargin", m, "FailoverMargin + RenewInterval (%v) + LeaseTTL/3 (%v) must be below LeaseTTL (%v)",
			o.RenewInterval, t.Attempt(), o.LeaseTTL)
	}
	c.between(prefix+"RetryInterval", o.RetryInterval, 10*time.Millisecond, o.LeaseTTL)
	if o.Safety.DriftMargin > o.LeaseTTL/2 {
		c.refuse(prefix+"Safety.DriftMargin", o.Safety.DriftMargin, "must be at most LeaseTTL/2 = %v", o.LeaseTTL/2)
	}
	return o
}

// leaderKey refuses a key of a lease that would share a key, or the channel, with something else of
// the namespace.
func (c *checker) leaderKey(prefix, namespace, key string) {
	if key == "" {
		return
	}
	if part := store.Keys(namespace).Taken(key); part != "" {
		c.refuse(prefix+"LeaderKey", key, "would share %q with the registry or the tasks of Namespace %q", part, namespace)
	}
}

// spreadElection refuses what only a store whose keys lie on several nodes cannot serve.
func (c *checker) spreadElection(prefix string, opts ElectionOptions) {
	if opts.LeaderKey != "" {
		c.tagged(prefix+"LeaderKey", opts.LeaderKey)
	}
}

// complete is for what has no relation to the LeaseTTL.
func (o SafetyOptions) complete(c *checker, prefix string) SafetyOptions {
	o.EmptyHistoryWait = orDefault(o.EmptyHistoryWait, 250*time.Millisecond)
	atMost := func(field string, d time.Duration) {
		if d > lease.MaxTTL {
			c.refuse(prefix+field, d, "must be at most %v", lease.MaxTTL)
		}
	}
	atMost("EmptyHistoryWait", o.EmptyHistoryWait)
	atMost("HoldOff", o.HoldOff)
	atMost("RestartGuard", o.RestartGuard)
	return o
}

func (o RegistryOptions) complete(c *checker, prefix string) RegistryOptions {
	o.HeartbeatInterval = orDefault(o.HeartbeatInterval, 15*time.Second)
	o.HeartbeatTTL = orDefault(o.HeartbeatTTL, 90*time.Second)
	o.SweepInterval = orDefault(o.SweepInterval, 10*time.Second)
	o.DriftedAfter = orDefault(o.DriftedAfter, 60*time.Second)
	o.DownAfter = orDefault(o.DownAfter, 300*time.Second)
	o.MinInstances = cmp.Or(o.MinInstances, 1)
	if o.MinInstances < 1 || o.MinInstances > store.MaxInstances {
		c.refuse(prefix+"MinInstances", o.MinInstances, "must be between 1 and %d", store.MaxInstances)
	}
	o.MetricsInterval = orDefault(o.MetricsInterval, 30*time.Second)
	if c.between(prefix+"MetricsInterval", o.MetricsInterval, time.Second, maxPeriod) && o.MetricsInterval%time.Second != 0 {
		c.refuse(prefix+"MetricsInterval", o.MetricsInterval, "must be whole seconds")
	}
	o.Host = cmp.Or(o.Host, defaultHost(os.Hostname))
	o = o.with(o.profile()) // the caller may go on with its own
	c.says(prefix, o.profile())
	if o.HeartbeatInterval > 0 && c.between(prefix+"HeartbeatInterval", o.HeartbeatInterval, 100*time.Millisecond, maxPeriod/2) {
		if o.HeartbeatTTL < 2*o.HeartbeatInterval {
			c.refuse(prefix+"HeartbeatTTL", o.HeartbeatTTL, "must be at least 2 · HeartbeatInterval = %v, so that one lost beat is survived", 2*o.HeartbeatInterval)
		}
		if o.DriftedAfter < 2*o.HeartbeatInterval {
			c.refuse(prefix+"DriftedAfter", o.DriftedAfter, "must be at least 2 · HeartbeatInterval = %v, so that one lost beat is survived", 2*o.HeartbeatInterval)
		}
	}
	if c.between(prefix+"HeartbeatTTL", o.HeartbeatTTL, time.Second, maxPeriod) && o.HeartbeatTTL%time.Second != 0 {
		c.refuse(prefix+"HeartbeatTTL", o.HeartbeatTTL, "must be whole seconds")
	}
	if o.SweepInterval > 0 {
		c.between(prefix+"SweepInterval", o.SweepInterval, 100*time.Millisecond, maxPeriod)
	}
	if c.between(prefix+"DriftedAfter", o.DriftedAfter, 200*time.Millisecond, maxPeriod) &&
		c.between(prefix+"DownAfter", o.DownAfter, 200*time.Millisecond, maxPeriod) && o.DownAfter <= o.DriftedAfter {
		c.refuse(prefix+"DownAfter", o.DownAfter, "must be above DriftedAfter = %v", o.DriftedAfter)
	}
	return o
}

// says refuses what an instance may not say of itself.
func (c *checker) says(prefix string, p store.Profile) {
	whole := func(field string, n, most int) {
		if n < 0 || n > most {
			c.refuse(prefix+field, n, "must be between 0 and %d", most)
		}
	}
	whole("WorkerCount", p.WorkerCount, store.MaxWorkers)
	whole("WorkerID", p.WorkerID, store.MaxWorkers)
	word := func(field, text string, pattern *store.Pattern) {
		if text != "" && !pattern.MatchString(text) {
			c.refuse(prefix+field, text, "must match %s", pattern)
		}
	}
	word("Address", p.Address, store.AddressPattern)
	if isAnyHost(p.Address) {
		c.refuse(prefix+"Address", p.Address, "must have the host that others reach this process at: this is an address to listen at")
	}
	word("Host", p.Host, store.HostPattern)
	word("Version", p.Version, store.VersionPattern)
	c.ports(prefix+"Ports", p.Ports)
	c.names(prefix+"Roles", p.Roles)
	c.names(prefix+"Capabilities", p.Capabilities)
	share := func(field string, f float64) {
		if math.IsNaN(f) || f < 0 || f > 1 {
			c.refuse(prefix+field, f, "must be between 0 and 1")
		}
	}
	for i, load := range []store.Load{p.Load, p.LoadLimit} {
		field := []string{"Load.", "LoadLimit."}[i]
		whole(field+"Connections", load.Connections, store.MaxLoadCount)
		whole(field+"Jobs", load.Jobs, store.MaxLoadCount)
		share(field+"CPU", load.CPU)
		share(field+"Memory", load.Memory)
	}
	size := 0
	for name, value := range p.Metadata {
		size += len(name) + len(value)
	}
	if len(p.Metadata) > store.MaxMetadataPairs || size > store.MaxMetadataBytes {
		c.refuse(prefix+"Metadata", unquoted(fmt.Sprintf("%d pairs, %d bytes", len(p.Metadata), size)), "must have at most %d pairs and %d bytes",
			store.MaxMetadataPairs, store.MaxMetadataBytes)
	}
}

// isAnyHost reports whether an address is one to listen at, such as :8080 or 0.0.0.0:8080: another
// process that goes there reaches itself.
func isAnyHost(address string) bool {
	if _, after, is := strings.Cut(address, "://"); is {
		address = after
	}
	if end := strings.IndexAny(address, "/?#"); end >= 0 {
		address = address[:end]
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]") // without a port
	} else if host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsUnspecified()
}

// names refuses a list of roles or capabilities that nobody would read back.
func (c *checker) names(field string, names []string) {
	size := 0
	for i, name := range names {
		size += len(name)
		if at := fmt.Sprintf("%s[%d]", field, i); !store.RolePattern.MatchString(name) {
			c.refuse(at, name, "must match %s", store.RolePattern)
		} else if slices.Contains(names[:i], name) {
			c.refuse(at, name, "is there twice")
		}
		if i == store.MaxNames {
			break // the rest would be as many problems
		}
	}
	if len(names) > store.MaxNames || size > store.MaxNameBytes {
		c.refuse(field, unquoted(fmt.Sprintf("%d names, %d bytes", len(names), size)), "must have at most %d names and %d bytes",
			store.MaxNames, store.MaxNameBytes)
	}
}

func (c *checker) ports(field string, ports map[string]int) {
	if len(ports) > store.MaxPorts {
		c.refuse(field, unquoted(fmt.Sprintf("%d ports", len(ports))), "must have at most %d ports", store.MaxPorts)
		return
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		size += len(name)
		if !store.RolePattern.MatchString(name) {
			c.refuse(field, name, "must have names that match %s", store.RolePattern)
		}
		if port := ports[name]; port < 1 || port > 65535 {
			c.refuse(fmt.Sprintf("%s[%.100q]", field, name), port, "must be between 1 and 65535")
		}
	}
	if size > store.MaxPortBytes {
		c.refuse(field, unquoted(fmt.Sprintf("%d bytes", size)), "must have names of at most %d bytes together", store.MaxPortBytes)
	}
}

// defaultHost is the name of this machine, if it is one that can be published.
func defaultHost(hostname func() (string, error)) string {
	if host, err := hostname(); err == nil && store.HostPattern.MatchString(host) {
		return host
	}
	return ""
}

// maxShards is how many roles tasks can be dealt out to.
const maxShards = 1000

func (o TaskOptions) complete(c *checker, prefix string) TaskOptions {
	o.Middleware = slices.Clone(o.Middleware) // the caller may go on with its own
	for i, wrap := range o.Middleware {
		if wrap == nil {
			c.refuse(fmt.Sprintf("%sMiddleware[%d]", prefix, i), nil, "must be a function")
		}
	}
	if o.History == 0 {
		o.History = store.DefaultHistory
	}
	if o.Shards = cmp.Or(o.Shards, 8); o.Shards < 1 || o.Shards > maxShards {
		c.refuse(prefix+"Shards", o.Shards, "must be between 1 and %d", maxShards)
	}
	if o.HistoryExpiry != 0 {
		c.between(prefix+"HistoryExpiry", o.HistoryExpiry, time.Minute, 3650*24*time.Hour)
	}
	if o.MaxConcurrent < 0 || o.MaxConcurrent > 1_000_000 {
		c.refuse(prefix+"MaxConcurrent", o.MaxConcurrent, "must be between 0 and 1000000")
	}
	if o.MinInstances < 0 || o.MinInstances > store.MaxInstances {
		c.refuse(prefix+"MinInstances", o.MinInstances, "must be between 0 and %d", store.MaxInstances)
	}
	if o.History > store.MaxHistory {
		c.refuse(prefix+"History", o.History, "must be at most %d; negative: none", store.MaxHistory)
	}
	return o
}
