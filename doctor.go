package tenure

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

// FindingLevel says how bad a finding is.
type FindingLevel string

// The levels of a finding.
const (
	FindingOK      FindingLevel = "ok"      // as it should be
	FindingUnknown FindingLevel = "unknown" // it could not be found out
	FindingNote    FindingLevel = "note"    // worth knowing
	FindingWarning FindingLevel = "warning" // a promise is weaker than it could be
	FindingFault   FindingLevel = "fault"   // no election, or a promise does not hold
)

// Finding is one thing that Doctor has looked at.
type Finding struct {
	Check string       `json:"check"` // what was looked at: connection, scripts, server, eviction, persistence, failover, round_trip, read_timeout, pool, hash_slot, rights, clock, replica_reads or namespaces
	Level FindingLevel `json:"level"`
	Text  string       `json:"text"`          // what was found
	Fix   string       `json:"fix,omitempty"` // what to do about it; "" if there is nothing to do
}

// Doctor looks at the Redis, the client and the options of all elections, of which it judges the
// least careful, and returns what it finds, in a fixed order. It takes about half a second, which
// the rate of Redis's clock needs, and sends some fifty commands. Nothing that it sends changes
// anything. Checks that Redis refuses, as managed offerings refuse CONFIG, are FindingUnknown. It
// works without Run, and returns what it knows when ctx is done. An error of Redis is a finding
// too.
//
// Doctor reads secrets of neither client nor server, and its texts hold none.
func (c *Coordinator) Doctor(ctx context.Context) []Finding {
	if c.backend.examine == nil {
		return []Finding{{Check: "connection", Level: FindingNote, Text: "there is no Redis: this process leads alone"}}
	}
	elections := make([]ElectionOptions, 0, 1)
	for _, e := range c.all() {
		elections = append(elections, e.loop.opts)
	}
	if len(elections) == 0 {
		elections = append(elections, c.opts.Election)
	}
	facts := c.backend.examine(ctx, func(ctx context.Context, call func(ctx context.Context) error) error {
		_, err := ask(ctx, &c.asked, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
		return err
	})
	return diagnose(facts, c.opts.Namespace, elections)
}

// diagnosis turns facts into findings.
type diagnosis struct {
	store.Facts
	namespace string
	roles     int
	tightest  ElectionOptions // of each option the one that is least careful
	drift     float64         // by how much faster than this machine's Redis's clock may run, as a part of one
	findings  []Finding
}

// diagnose judges what an examination found, for the elections of a process.
func diagnose(f store.Facts, namespace string, elections []ElectionOptions) []Finding {
	d := diagnosis{Facts: f, namespace: namespace, roles: len(elections), tightest: elections[0], drift: driftOf(elections[0])}
	for _, e := range elections[1:] {
		d.tighten(e)
	}
	if err := f.Refused[store.ProbePing]; err != nil {
		d.refused("connection", FindingFault, err)
		return d.findings
	}
	if len(f.RoundTrips) == 0 {
		d.add("connection", FindingOK, "", "redis answers")
	} else {
		d.add("connection", FindingOK, "", "redis answers within %v", d.roundTrip())
	}
	if err := f.Refused[store.ProbeScripts]; err != nil {
		d.refused("scripts", FindingFault, err)
	} else {
		d.add("scripts", FindingOK, "", "the scripts run, and the keys of the lease can be read")
	}
	d.server()
	d.eviction()
	d.persistence()
	d.failover()
	d.trips()
	d.client()
	d.rights()
	d.clock()
	d.neighbours()
	return d.findings
}

// tighten takes a further election into account. No role is safer because another one is.
func (d *diagnosis) tighten(e ElectionOptions) {
	d.tightest.LeaseTTL = min(d.tightest.LeaseTTL, e.LeaseTTL)
	safety := &d.tightest.Safety
	safety.RestartGuard = min(safety.RestartGuard, e.Safety.RestartGuard)
	safety.FailoverMargin = min(safety.FailoverMargin, e.Safety.FailoverMargin)
	if wait := e.Safety.EmptyHistoryWait; wait > 0 && (safety.EmptyHistoryWait <= 0 || wait < safety.EmptyHistoryWait) {
		safety.EmptyHistoryWait = wait
	}
	d.drift = min(d.drift, driftOf(e))
}

func driftOf(e ElectionOptions) float64 {
	return max(e.Safety.DriftMargin, 0).Seconds() / e.LeaseTTL.Seconds()
}

func (d *diagnosis) add(check string, level FindingLevel, fix, text string, args ...any) {
	d.findings = append(d.findings, Finding{Check: check, Level: level, Text: fmt.Sprintf(text, args...), Fix: fix})
}

// refused is the finding of an error.
func (d *diagnosis) refused(check string, level FindingLevel, err error) {
	fix := ""
	if e, ok := store.AsType[*store.Error](err); ok {
		fix, err = e.Fix, e.Err
	}
	d.findings = append(d.findings, Finding{Check: check, Level: level, Text: plainText(err), Fix: fix})
}

// roundTrip is the median of those that were measured, if any.
func (d *diagnosis) roundTrip() time.Duration {
	return d.RoundTrips[len(d.RoundTrips)/2].Round(time.Microsecond)
}

// server judges what it is.
func (d *diagnosis) server() {
	if d.Refused[store.ProbeInfo] != nil {
		d.add("server", FindingUnknown, "", "INFO is refused")
		return
	}
	what := strings.TrimSpace("redis " + d.Version)
	if d.Valkey != "" {
		what = "valkey " + d.Valkey
	}
	switch {
	case d.Role == "slave", d.Role == "replica": // as Redis and Valkey say, and as Dragonfly does
		d.add("server", FindingFault, "let the client connect to the master, with NewFailoverClient if Sentinel names it", "%s is a replica: it refuses every lease", what)
	case d.Several:
		d.add("server", FindingFault, "use a Redis with one master of each key", "%s is one of several masters of the same keys: each grants leases, so that two lead", what)
	case d.Version != "" && !atLeast(d.Version, 6, 2):
		d.add("server", FindingFault, "use Redis 6.2 or later", "%s is too old", what)
	case d.Cluster && d.Client.Kind == "single":
		d.add("server", FindingFault, "use redis.NewClusterClient, and a namespace with a {hash tag}", "%s is a node of a cluster, and the client speaks to this node only", what)
	case d.Version == "":
		d.add("server", FindingUnknown, "see that it is Redis 6.2 or later", "INFO does not say which version it is")
	case !d.Replication:
		d.add("server", FindingUnknown, "see that it is a master", "%s, up %v: INFO says nothing of replication", what, d.Uptime)
	default:
		d.add("server", FindingOK, "", "%s, a master with %d replicas, up %v", what, d.Replicas, d.Uptime)
	}
}

// atLeast compares the version of a server.
func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(first)
	b, _ := strconv.Atoi(second)
	return a > major || a == major && b >= minor
}

// setting is one of CONFIG GET; false if it could not be read, which is a finding then.
func (d *diagnosis) setting(check, name string) (string, bool) {
	value, ok := d.Settings[name]
	if !ok {
		d.add(check, FindingUnknown, "allow the user +config|get, or look at "+name+" by other means", "%s cannot be read", name)
	}
	return value, ok
}

func (d *diagnosis) eviction() {
	policy, ok := d.setting("eviction", "maxmemory-policy")
	most, _ := strconv.ParseInt(d.Settings["maxmemory"], 10, 64)
	switch limit := d.Settings["maxmemory"]; {
	case !ok:
	case policy == "noeviction" && most > 0 && d.Used >= most:
		d.add("eviction", FindingFault, "give Redis more memory, or remove what is not needed", "redis is full: %d bytes are used, maxmemory is %d, and each write of a lease is refused", d.Used, most)
	case policy == "noeviction":
		d.add("eviction", FindingOK, "", "nothing is evicted: maxmemory-policy is noeviction")
	case limit == "0":
		d.add("eviction", FindingNote, "set maxmemory-policy noeviction", "maxmemory-policy is %s, though no maxmemory is set", policy)
	default:
		d.add("eviction", FindingWarning, "set maxmemory-policy noeviction, or use a Redis that is no cache",
			"maxmemory-policy is %s: a full Redis evicts leases and their history, and leaders lose their terms", policy)
	}
}

func (d *diagnosis) persistence() {
	if err := d.Refused[store.ProbeWrite]; err != nil {
		d.refused("persistence", FindingFault, err)
		return
	}
	aof, ok := d.setting("persistence", "appendonly")
	save, known := d.Settings["save"]
	switch {
	case !ok:
	case aof == "yes":
		d.add("persistence", FindingOK, "", "appendonly is on")
	case known && save == "" && d.tightest.Safety.RestartGuard < 0:
		d.add("persistence", FindingWarning, "set appendonly yes, or leave RestartGuard at its default",
			"Redis keeps nothing across a restart, and RestartGuard is off: two may lead after one")
	case known && save == "":
		d.add("persistence", FindingNote, "set appendonly yes", "Redis keeps nothing across a restart: tasks lose their schedule, and an election waits until Redis is older than the lease")
	default:
		d.add("persistence", FindingNote, "set appendonly yes", "a restart loses what was written since the last snapshot")
	}
}

// failover judges whether writes that were answered can be lost.
func (d *diagnosis) failover() {
	least, _ := strconv.Atoi(d.Settings["min-replicas-to-write"])
	known := d.Refused[store.ProbeInfo] == nil && d.Replication
	if known && d.Counted && d.InSync == 0 && least == 0 { // CONFIG is refused
		d.add("failover", FindingFault, "start replicas, or set min-replicas-to-write 0 if there are to be none",
			"min-replicas-to-write is on, and no replica is in step: every write is refused")
		return
	}
	if known && least > d.InSync && d.Settings["min-replicas-max-lag"] != "0" {
		d.add("failover", FindingFault, "start replicas, or set min-replicas-to-write 0 if there are to be none",
			"min-replicas-to-write is %d, and %d replicas are in step: every write is refused", least, d.InSync)
		return
	}
	if known && d.Replicas == 0 && !d.Cluster {
		d.add("failover", FindingOK, "", "there is no replica that could be promoted")
		return
	}
	margin := max(d.tightest.Safety.FailoverMargin, 0)
	_, ok := d.setting("failover", "min-replicas-to-write")
	off, enough := "min-replicas-to-write is 0", max((d.Replicas+1)/2, 1)
	if least > 0 && d.Settings["min-replicas-max-lag"] == "0" {
		least, off = 0, "min-replicas-max-lag is 0, which turns min-replicas-to-write off,"
	}
	switch {
	case !ok:
	case margin == 0 && known && least > 0 && least < enough:
		d.add("failover", FindingWarning, fmt.Sprintf("set min-replicas-to-write %d, half of the replicas, or FailoverMargin to the time for which an old master may still take writes", enough),
			"min-replicas-to-write is %d, and there are %d replicas: two may lead while an old master that has kept so many takes writes beside a new one", least, d.Replicas)
	case least > 0:
		text := fmt.Sprintf("min-replicas-to-write is %d, min-replicas-max-lag %s s, FailoverMargin %v", least, d.Settings["min-replicas-max-lag"], margin)
		if lag, err := strconv.Atoi(d.Settings["min-replicas-max-lag"]); err == nil && !d.Cluster { // which has a master that is cut off stop by itself
			text += fmt.Sprintf("; down-after-milliseconds of Sentinel must be at least %d", max(time.Duration(lag+2)*time.Second-margin, 0).Milliseconds())
		}
		d.add("failover", FindingOK, "", "%s", text)
	case margin > 0:
		d.add("failover", FindingOK, "", "FailoverMargin is %v: it must be longer than an old master can take writes beside a new one", margin)
	case !known:
		why := "INFO says nothing of them"
		if d.Refused[store.ProbeInfo] != nil {
			why = "INFO is refused"
		}
		d.add("failover", FindingUnknown, "", "%s and there is no FailoverMargin; whether there are replicas is not known, since %s", off, why)
	default:
		d.add("failover", FindingWarning, fmt.Sprintf("set min-replicas-to-write %d, and min-replicas-max-lag two seconds below down-after-milliseconds of Sentinel, or FailoverMargin to the time for "+
			"which an old master may still take writes", enough), "%s and there is no FailoverMargin: two may lead while an old master takes writes beside a new one", off)
	}
}

// trips judges the lease and the roll-call by the round trips.
func (d *diagnosis) trips() {
	n := len(d.RoundTrips)
	if n == 0 {
		d.add("round_trip", FindingUnknown, "", "there was no time to measure one")
		return
	}
	trip, longest, ttl := d.roundTrip(), d.RoundTrips[n-1].Round(time.Microsecond), d.tightest.LeaseTTL
	need := time.Duration(3+(d.roles+799)/800) * trip
	switch wait := d.tightest.Safety.EmptyHistoryWait; {
	case longest > ttl/3:
		d.add("round_trip", FindingFault, "set a longer LeaseTTL", "a round trip took %v, and a request of a lease of %v is given up after %v", longest, ttl, ttl/3)
	case longest > ttl/20:
		d.add("round_trip", FindingWarning, "set a longer LeaseTTL", "a round trip took %v, more than a twentieth of the lease of %v", longest, ttl)
	case wait > 0 && need > wait/2:
		d.add("round_trip", FindingWarning, "set a longer EmptyHistoryWait", "leaders need %v to answer a roll-call, more than half of EmptyHistoryWait, %v", need, wait)
	default:
		d.add("round_trip", FindingOK, "", "%v, at most %v, with a lease of %v", trip, longest, ttl)
	}
}

// client judges its settings.
func (d *diagnosis) client() {
	c, ttl := d.Client, d.tightest.LeaseTTL
	if c.Kind == "other" {
		d.add("client", FindingUnknown, "", "it is neither a *redis.Client nor a *redis.ClusterClient: its settings cannot be read")
		return
	}
	switch {
	case c.ReadTimeout <= 0:
		d.add("read_timeout", FindingWarning, "set ReadTimeout of the client to LeaseTTL/10", "the client waits without an end for an answer")
	case c.ReadTimeout > ttl/3:
		d.add("read_timeout", FindingWarning, "set ReadTimeout of the client to LeaseTTL/10 or less",
			"ReadTimeout is %v, longer than a third of the lease of %v: a connection that died without a sign holds up heartbeats and tasks", c.ReadTimeout, ttl)
	default:
		d.add("read_timeout", FindingOK, "", "ReadTimeout is %v", c.ReadTimeout)
	}
	if c.PoolSize < 4 {
		d.add("pool", FindingWarning, "set PoolSize of the client to 4 or more", "PoolSize is %d: tasks and heartbeats wait for each other", c.PoolSize)
	} else {
		d.add("pool", FindingOK, "", "PoolSize is %d", c.PoolSize)
	}
	if c.Kind == "cluster" {
		d.add("hash_slot", FindingOK, "", "all keys lie in the slot of %q", store.HashTag(d.namespace))
	}
	if c.FromReplicas {
		d.add("replica_reads", FindingNote, "give tenure a client without ReadOnly, RouteByLatency and RouteRandomly",
			"the client reads from replicas: listings of tasks and runs may be behind; leases are not")
	}
}

// rights judges what may be left out at a price.
func (d *diagnosis) rights() {
	const unwitnessed = "a restart or failover of Redis is not noticed, and two may lead after it"
	whole := true
	if !d.Witness && d.Refused[store.ProbeInfo] == nil && d.Refused[store.ProbeScripts] == nil {
		d.add("rights", FindingWarning, "use another offering, or have what leaders write to check the token: no right helps",
			"INFO does not tell scripts the replication id: "+unwitnessed)
		whole = false
	}
	for _, right := range []struct {
		probe, price string
	}{
		{store.ProbeInfo, unwitnessed},
		{store.ProbePublish, "hand-overs and roll-calls are not announced: others find out at their next request"},
		{store.ProbeSubscribe, "this process hears of hand-overs and roll-calls at its next request only"},
	} {
		err := d.Refused[right.probe]
		if right.probe == store.ProbeInfo && d.Witness { // it is scripts that need it
			continue
		}
		if errors.Is(err, store.ErrUnreachable) {
			d.refused("rights", FindingUnknown, err)
			last := &d.findings[len(d.findings)-1]
			last.Text = "whether " + right.probe + " is allowed is not known (" + last.Text + ")"
			whole = false
		} else if err != nil {
			d.refused("rights", FindingWarning, err)
			last := &d.findings[len(d.findings)-1]
			last.Text = right.probe + " is refused: " + right.price + " (" + last.Text + ")"
			whole = false
		}
	}
	if whole {
		d.add("rights", FindingOK, "", "scripts, INFO and the channels of hints are allowed")
	}
}

// clock judges Redis's clock against this machine's.
func (d *diagnosis) clock() {
	apart := d.Offset.Abs().Round(time.Millisecond)
	switch {
	case d.Rate == 0 && d.RateError == 0:
		d.add("clock", FindingUnknown, "", "there was no time to compare the clocks")
	case d.Rate-d.RateError > d.drift:
		d.add("clock", FindingFault, "let NTP slew the clock of Redis's machine, or set a longer DriftMargin",
			"redis's clock runs %.2f %% faster than this machine's (± %.2f), and DriftMargin allows %.2f: a leader may believe in a lease that has ended", 100*d.Rate, 100*d.RateError, 100*d.drift)
	case apart > time.Minute:
		d.add("clock", FindingWarning, "set the clock of Redis's machine: cron schedules go by it", "redis's clock is %v apart from this machine's", apart)
	case apart > 2*time.Second:
		d.add("clock", FindingNote, "let NTP keep both clocks", "redis's clock is %v apart from this machine's: no lease depends on it, cron schedules go by Redis's", apart)
	default:
		d.add("clock", FindingOK, "", "redis's clock is %v apart from this machine's (± %v)", apart, d.OffsetError.Round(time.Microsecond))
	}
}

// neighbours judges the names of namespaces.
func (d *diagnosis) neighbours() {
	switch {
	case len(d.Neighbours) > 0:
		d.add("namespaces", FindingNote, "choose names of which none begins with another and a colon",
			"of the namespaces %q and %q one begins with the other: the rights to the shorter one (~name:*) include the longer one's keys", d.namespace, d.Neighbours)
	case d.Refused[store.ProbeScan] != nil:
		d.add("namespaces", FindingUnknown, "", "SCAN is refused: whether the name of another namespace begins with this one's is not known")
	default:
		d.add("namespaces", FindingOK, "", "no other namespace begins with this one's name")
	}
}

// ControlRules returns the rights that the Redis user of a Control needs, in the form of ACLRules:
// those, and the right to send commands to instances. The user of a process that only takes part
// need not have it: without it no command can be sent, and every one is received. NewControl and
// Coordinator.Control return ErrMisconfigured for what is not allowed. The errors are those of
// ACLRules.
func ControlRules(namespace string, leaderKeys ...string) ([]string, error) {
	rules, err := ACLRules(namespace, leaderKeys...)
	if err != nil {
		return nil, err
	}
	for _, command := range redisstore.ControlCommands {
		rules = append(rules, "+"+command)
	}
	return rules, nil
}

// ACLRules returns the rights that a Redis user needs for everything in the namespace, and for each
// LeaderKey outside of it, as arguments of ACL SETUSER: keys, the channels of hints, and each
// command by name. They allow no more than tenure uses. They contain no name and no password:
//
//	ACL SETUSER app reset on >password <rules>
//
// Some rights may be left out at a price. Without subscribe or the channels no hint arrives, and
// without publish none is sent (ElectionStatus.Subscription): a follower that waits for a release
// finds it at its own next attempt, a leader hears no roll-call (see
// SafetyOptions.EmptyHistoryWait), and a command of a Control waits for a heartbeat. Without the
// channel of <namespace>:instance:* a check of the subscription shows only that it is connected,
// not that it is connected to the server that the scripts run on. Without info a restart or
// failover of Redis is not noticed (ElectionStatus.HistoryWitness). Without the key :terms of a
// LeaderKey its terms have no history (Elector.Terms).
//
// Some options of the client make go-redis send more commands as it connects. They need one more
// right each: ClientName +client|setname, DB +select, and ReadOnly of a cluster +readonly. A client
// of Sentinel needs no more on the data servers. Its rights on the Sentinels are those of another
// user, which these rules do not cover.
//
// If Options would refuse the namespace or a key, ACLRules returns the error that New returns:
// errors.As finds an *OptionError in it.
func ACLRules(namespace string, leaderKeys ...string) ([]string, error) {
	var c checker
	c.namespace("Namespace", namespace)
	for _, key := range leaderKeys {
		c.namespace("LeaderKey", key)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	rules := []string{"~" + namespace + ":*"}
	for _, key := range leaderKeys {
		rules = append(rules, "~"+key, "~"+key+":since", "~"+key+":term", "~"+key+":terms")
	}
	table := store.Keys(namespace)
	rules = append(rules, "&"+table.Events(), "&"+store.LeaseEvents(table.Lease("")), "&"+store.LeaseEvents(table.Lease("*")), "&"+table.Own("*"))
	for _, key := range leaderKeys {
		rules = append(rules, "&"+store.LeaseEvents(key))
	}
	for _, command := range redisstore.ScriptCommands {
		rules = append(rules, "+"+command)
	}
	for _, command := range redisstore.ClientCommands {
		rules = append(rules, "+"+command)
	}
	return rules, nil
}
