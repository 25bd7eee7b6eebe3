package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

// soundFacts are those of a Redis in which nothing is wrong.
func soundFacts() store.Facts {
	return store.Facts{
		Client:  store.ClientFacts{Kind: "single", ReadTimeout: 3 * time.Second, DialTimeout: 5 * time.Second, PoolSize: 20},
		Version: "7.0.15", Role: "master", Replication: true, Witness: true, Uptime: time.Hour,
		Settings: map[string]string{
			"maxmemory": "0", "maxmemory-policy": "noeviction", "appendonly": "yes", "save": "", "min-replicas-to-write": "0", "min-replicas-max-lag": "10",
		},
		RoundTrips:  []time.Duration{time.Millisecond, time.Millisecond, 2 * time.Millisecond},
		OffsetError: time.Millisecond, RateError: 0.001,
		Refused: map[string]error{},
	}
}

// Each fact that somebody has to know of is one finding of its check, with the level that it
// deserves and with a fix; beside it all else is as it should be.
func TestDiagnosis(t *testing.T) {
	options := func(change func(*ElectionOptions)) ElectionOptions {
		var o ElectionOptions
		change(&o)
		var c checker
		o = o.complete(&c, "")
		require.NoError(t, c.err())
		return o
	}
	defaults := options(func(*ElectionOptions) {})
	for _, finding := range diagnose(soundFacts(), "shop", []ElectionOptions{defaults}) {
		require.Equal(t, FindingOK, finding.Level, "%+v", finding)
		require.Empty(t, finding.Fix, "%+v", finding)
	}

	refused := &store.Error{Kind: store.ErrMisconfigured, Op: "x", Fix: "grant it", Err: context.DeadlineExceeded}
	no := func(probe string) func(*store.Facts) {
		return func(f *store.Facts) { f.Refused[probe] = refused }
	}
	set := func(name, value string) func(*store.Facts) {
		return func(f *store.Facts) { f.Settings[name] = value }
	}
	unset := func(name string) func(*store.Facts) {
		return func(f *store.Facts) { delete(f.Settings, name) }
	}
	for name, row := range map[string]struct {
		facts func(*store.Facts)
		opts  ElectionOptions
		check string
		level FindingLevel
		says  string
	}{
		"unreachable":            {no(store.ProbePing), defaults, "connection", FindingFault, "deadline exceeded"},
		"no scripts":             {no(store.ProbeScripts), defaults, "scripts", FindingFault, "deadline exceeded"},
		"a replica":              {func(f *store.Facts) { f.Role = "slave" }, defaults, "server", FindingFault, "is a replica"},
		"several masters":        {func(f *store.Facts) { f.Several = true }, defaults, "server", FindingFault, "each grants leases"},
		"a replica of Dragonfly": {func(f *store.Facts) { f.Role = "replica" }, defaults, "server", FindingFault, "is a replica"},
		"old":                    {func(f *store.Facts) { f.Version = "6.0.16" }, defaults, "server", FindingFault, "too old"},
		"unnamed":                {func(f *store.Facts) { f.Version = "" }, defaults, "server", FindingUnknown, "which version"},
		"silent on replicas": {func(f *store.Facts) {
			f.Role, f.Replication, f.Settings["min-replicas-to-write"] = "", false, "1"
		}, defaults, "server", FindingUnknown, "nothing of replication"},
		"replicas not known": {func(f *store.Facts) { f.Role, f.Replication = "", false }, defaults, "failover", FindingUnknown, "is not known"},
		"one of many":        {func(f *store.Facts) { f.Cluster = true; f.Settings["min-replicas-to-write"] = "1"; f.InSync = 1 }, defaults, "server", FindingFault, "this node only"},
		"evicts":             {func(f *store.Facts) { f.Settings["maxmemory"] = "1000"; f.Settings["maxmemory-policy"] = "allkeys-lru" }, defaults, "eviction", FindingWarning, "evicts leases"},
		"would evict":        {set("maxmemory-policy", "volatile-lru"), defaults, "eviction", FindingNote, "no maxmemory"},
		"full": {func(f *store.Facts) {
			f.Settings["maxmemory"], f.Settings["maxmemory-policy"], f.Used = "1000", "noeviction", 1000
		}, defaults, "eviction", FindingFault, "is full"},
		"no replica in step": {set("min-replicas-to-write", "1"), defaults, "failover", FindingFault, "every write is refused"},
		"nor known how many": {func(f *store.Facts) {
			f.Counted = true
			delete(f.Settings, "min-replicas-to-write")
		}, defaults, "failover", FindingFault, "every write is refused"},
		"policy unread": {unset("maxmemory-policy"), defaults, "eviction", FindingUnknown, "cannot be read"},
		"snapshots":     {func(f *store.Facts) { f.Settings["appendonly"] = "no"; f.Settings["save"] = "3600 1" }, defaults, "persistence", FindingNote, "last snapshot"},
		"nothing saved": {func(f *store.Facts) {
			f.Refused[store.ProbeWrite] = &store.Error{Fix: "free it", Err: errors.New("MISCONF full")}
		}, defaults, "persistence", FindingFault, "MISCONF full"},
		"nothing kept":    {set("appendonly", "no"), defaults, "persistence", FindingNote, "keeps nothing"},
		"and no guard":    {set("appendonly", "no"), options(func(o *ElectionOptions) { o.Safety.RestartGuard = -1 }), "persistence", FindingWarning, "two may lead"},
		"a second master": {func(f *store.Facts) { f.Replicas = 1 }, defaults, "failover", FindingWarning, "two may lead"},
		"no lag is too long": {func(f *store.Facts) {
			f.Replicas, f.InSync, f.Settings["min-replicas-to-write"], f.Settings["min-replicas-max-lag"] = 1, 1, "1", "0"
		}, defaults, "failover", FindingWarning, "turns min-replicas-to-write off"},
		"an old master keeps enough": {func(f *store.Facts) {
			f.Replicas, f.InSync, f.Settings["min-replicas-to-write"] = 3, 3, "1"
		}, defaults, "failover", FindingWarning, "there are 3 replicas: two may lead"},
		"slow": {func(f *store.Facts) { f.RoundTrips[2] = 2 * time.Second }, defaults, "round_trip", FindingWarning, "twentieth"},
		"too slow": {func(f *store.Facts) {
			f.RoundTrips[2], f.Client.ReadTimeout = 200*time.Millisecond, 50*time.Millisecond
		}, options(func(o *ElectionOptions) { o.LeaseTTL = 500 * time.Millisecond }), "round_trip", FindingFault, "given up"},
		"a slow roll-call": {
			func(f *store.Facts) { f.RoundTrips = []time.Duration{40 * time.Millisecond} }, defaults, "round_trip", FindingWarning, "roll-call",
		},
		"no time-out":   {func(f *store.Facts) { f.Client.ReadTimeout = 0 }, defaults, "read_timeout", FindingWarning, "without an end"},
		"long time-out": {func(f *store.Facts) { f.Client.ReadTimeout = 11 * time.Second }, defaults, "read_timeout", FindingWarning, "third of the lease"},
		"small pool":    {func(f *store.Facts) { f.Client.PoolSize = 1 }, defaults, "pool", FindingWarning, "wait for each other"},
		"replica reads": {func(f *store.Facts) { f.Client.FromReplicas = true }, defaults, "replica_reads", FindingNote, "may be behind"},
		"no info": {func(f *store.Facts) {
			no(store.ProbeInfo)(f)
			f.Witness = false
		}, defaults, "rights", FindingWarning, "info is refused: a restart or failover of Redis is not noticed"},
		"no info in scripts": {
			func(f *store.Facts) { f.Witness = false }, defaults, "rights", FindingWarning, "INFO does not tell scripts the replication id: a restart or failover",
		},
		"no hints":       {no(store.ProbePublish), defaults, "rights", FindingWarning, "not announced"},
		"deaf":           {no(store.ProbeSubscribe), defaults, "rights", FindingWarning, "next request"},
		"fast clock":     {func(f *store.Facts) { f.Rate = 0.02 }, defaults, "clock", FindingFault, "2.00 % faster"},
		"clock apart":    {func(f *store.Facts) { f.Offset = -5 * time.Second }, defaults, "clock", FindingNote, "5s apart"},
		"clock far":      {func(f *store.Facts) { f.Offset = time.Hour }, defaults, "clock", FindingWarning, "1h0m0s apart"},
		"no time":        {func(f *store.Facts) { f.RateError = 0 }, defaults, "clock", FindingUnknown, "no time"},
		"prefix":         {func(f *store.Facts) { f.Neighbours = []string{"shop:eu"} }, defaults, "namespaces", FindingNote, "shop:eu"},
		"no scan":        {no(store.ProbeScan), defaults, "namespaces", FindingUnknown, "SCAN"},
		"another client": {func(f *store.Facts) { f.Client = store.ClientFacts{Kind: "other"} }, defaults, "client", FindingUnknown, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := soundFacts()
			row.facts(&facts)
			found := false
			for _, finding := range diagnose(facts, "shop", []ElectionOptions{options(func(o *ElectionOptions) { o.LeaseTTL = 24 * time.Hour }), row.opts}) {
				if finding.Check == row.check && finding.Level == row.level {
					found = true
					require.Contains(t, finding.Text, row.says)
					require.True(t, finding.Fix != "" || row.level == FindingUnknown, "without a fix: %+v", finding)
				} else if finding.Level != FindingUnknown {
					require.Equal(t, FindingOK, finding.Level, "%+v", finding)
				}
			}
			require.True(t, found, "no finding of %s", row.check)
		})
	}

	f := soundFacts()
	f.Replicas, f.InSync, f.Settings["min-replicas-to-write"] = 2, 1, "1"
	for _, finding := range diagnose(f, "shop", []ElectionOptions{defaults}) {
		require.Equal(t, FindingOK, finding.Level, "%+v", finding)
	}
}

// diagnosed judges facts for one election, each as a line.
func diagnosed(t *testing.T, change func(*store.Facts), opts func(*ElectionOptions)) (lines []string) {
	t.Helper()
	var o ElectionOptions
	opts(&o)
	var c checker
	o = o.complete(&c, "")
	require.NoError(t, c.err())
	f := soundFacts()
	change(&f)
	for _, finding := range diagnose(f, "shop", []ElectionOptions{o}) {
		lines = append(lines, fmt.Sprintf("%s %s: %s", finding.Check, finding.Level, finding.Text))
	}
	return lines
}

// TestDiagnosisInFull: what Doctor says of a Redis, word by word.
func TestDiagnosisInFull(t *testing.T) {
	same := func(*store.Facts) {}
	plain := func(*ElectionOptions) {}
	no := &store.Error{Kind: store.ErrMisconfigured, Op: "x", Fix: "grant it", Err: errors.New("NOPERM")}
	require.Equal(t, []string{
		"connection ok: redis answers within 1ms",
		"scripts ok: the scripts run, and the keys of the lease can be read",
		"server ok: redis 7.0.15, a master with 0 replicas, up 1h0m0s",
		"eviction ok: nothing is evicted: maxmemory-policy is noeviction",
		"persistence ok: appendonly is on",
		"failover ok: there is no replica that could be promoted",
		"round_trip ok: 1ms, at most 2ms, with a lease of 30s",
		"read_timeout ok: ReadTimeout is 3s",
		"pool ok: PoolSize is 20",
		"rights ok: scripts, INFO and the channels of hints are allowed",
		"clock ok: redis's clock is 0s apart from this machine's (± 1ms)",
		"namespaces ok: no other namespace begins with this one's name",
	}, diagnosed(t, same, plain))
	require.Equal(t, []string{
		"connection ok: redis answers",
		"scripts ok: the scripts run, and the keys of the lease can be read",
		"server ok: valkey 8.1, a master with 2 replicas, up 1h0m0s",
		"eviction ok: nothing is evicted: maxmemory-policy is noeviction",
		"persistence ok: appendonly is on",
		"failover ok: min-replicas-to-write is 1, min-replicas-max-lag 10 s, FailoverMargin 0s",
		"round_trip unknown: there was no time to measure one",
		"read_timeout ok: ReadTimeout is 3s",
		"pool ok: PoolSize is 20",
		"hash_slot ok: all keys lie in the slot of \"shop\"",
		"rights ok: scripts, INFO and the channels of hints are allowed",
		"clock ok: redis's clock is 0s apart from this machine's (± 1ms)",
		"namespaces ok: no other namespace begins with this one's name",
	}, diagnosed(t, func(f *store.Facts) {
		f.Client.Kind, f.Cluster, f.Replicas, f.InSync, f.Valkey, f.RoundTrips = "cluster", true, 2, 1, "8.1", nil
		f.Settings["min-replicas-to-write"] = "1"
	}, plain))
	require.Contains(t, diagnosed(t, func(f *store.Facts) {
		f.Replicas, f.InSync, f.Settings["min-replicas-to-write"] = 1, 1, "1"
	}, plain), "failover ok: min-replicas-to-write is 1, min-replicas-max-lag 10 s, FailoverMargin 0s; down-after-milliseconds of Sentinel must be at least 12000")
	require.Equal(t, []string{
		"connection ok: redis answers within 1ms",
		"scripts fault: no scripts",
		"server unknown: INFO is refused",
		"eviction unknown: maxmemory-policy cannot be read",
		"persistence unknown: appendonly cannot be read",
		"failover unknown: min-replicas-to-write cannot be read",
		"round_trip ok: 1ms, at most 2ms, with a lease of 30s",
		"client unknown: it is neither a *redis.Client nor a *redis.ClusterClient: its settings cannot be read",
		"rights warning: info is refused: a restart or failover of Redis is not noticed, and two may lead after it (NOPERM)",
		"rights warning: publish is refused: hand-overs and roll-calls are not announced: others find out at their next request (NOPERM)",
		"rights warning: subscribe is refused: this process hears of hand-overs and roll-calls at its next request only (NOPERM)",
		"clock unknown: there was no time to compare the clocks",
		"namespaces unknown: SCAN is refused: whether the name of another namespace begins with this one's is not known",
	}, diagnosed(t, func(f *store.Facts) {
		for _, probe := range []string{store.ProbeInfo, store.ProbePublish, store.ProbeSubscribe, store.ProbeScan} {
			f.Refused[probe] = no
		}
		f.Refused[store.ProbeScripts] = errors.New("no scripts")
		f.Witness = false
		f.Settings, f.Client.Kind, f.RateError = nil, "other", 0
	}, plain))
	require.Equal(t, []string{
		"connection ok: redis answers within 1ms",
		"scripts ok: the scripts run, and the keys of the lease can be read",
		"server ok: redis 7.0.15, a master with 1 replicas, up 1h0m0s",
		"eviction ok: nothing is evicted: maxmemory-policy is noeviction",
		"persistence ok: appendonly is on",
		"failover ok: FailoverMargin is 2s: it must be longer than an old master can take writes beside a new one",
		"round_trip fault: a round trip took 11s, and a request of a lease of 30s is given up after 10s",
		"read_timeout ok: ReadTimeout is 3s",
		"pool ok: PoolSize is 20",
		"rights ok: scripts, INFO and the channels of hints are allowed",
		"clock fault: redis's clock runs 5.00 % faster than this machine's (± 0.40), and DriftMargin allows 2.00: a leader may believe in a lease that has ended",
		"namespaces ok: no other namespace begins with this one's name",
	}, diagnosed(t, func(f *store.Facts) {
		f.Replicas, f.RoundTrips[2], f.Rate, f.RateError = 1, 11*time.Second, 0.05, 0.004
	}, func(o *ElectionOptions) {
		o.Safety.FailoverMargin, o.Safety.DriftMargin = 2*time.Second, 600*time.Millisecond
	}))
	require.Contains(t, diagnosed(t, func(f *store.Facts) { f.Refused[store.ProbeInfo], f.Settings["appendonly"] = no, "no" }, plain),
		"failover unknown: min-replicas-to-write is 0 and there is no FailoverMargin; whether there are replicas is not known, since INFO is refused")
	silent := &store.Error{Kind: store.ErrUnreachable, Op: "SUBSCRIBE", Err: errors.New("broken pipe")}
	require.Contains(t, diagnosed(t, func(f *store.Facts) { f.Refused[store.ProbeSubscribe] = silent }, plain),
		"rights unknown: whether subscribe is allowed is not known (broken pipe)", "no answer is no refusal")
	require.Contains(t, diagnosed(t, func(f *store.Facts) { f.Refused[store.ProbeInfo] = no }, plain),
		"rights ok: scripts, INFO and the channels of hints are allowed", "a proxy that refuses INFO to clients refuses it to no script")
	require.Contains(t, diagnosed(t, func(f *store.Facts) { f.Replication = false }, plain),
		"failover unknown: min-replicas-to-write is 0 and there is no FailoverMargin; whether there are replicas is not known, since INFO says nothing of them")
}

// TestDiagnosisAtItsLimits: a limit itself is still on the better side, or already on the worse.
func TestDiagnosisAtItsLimits(t *testing.T) {
	const ms = time.Millisecond
	plain := func(*ElectionOptions) {}
	trips := func(of ...time.Duration) func(*store.Facts) { return func(f *store.Facts) { f.RoundTrips = of } }
	timeout := func(d time.Duration) func(*store.Facts) { return func(f *store.Facts) { f.Client.ReadTimeout = d } }
	pool := func(n int) func(*store.Facts) { return func(f *store.Facts) { f.Client.PoolSize = n } }
	version := func(v string) func(*store.Facts) { return func(f *store.Facts) { f.Version = v } }
	apart := func(d time.Duration) func(*store.Facts) { return func(f *store.Facts) { f.Offset = d } }
	rate := func(by, give float64) func(*store.Facts) {
		return func(f *store.Facts) { f.Rate, f.RateError = by, give }
	}
	margin := func(d time.Duration) func(*ElectionOptions) {
		return func(o *ElectionOptions) { o.Safety.FailoverMargin = d }
	}
	for i, row := range []struct {
		facts func(*store.Facts)
		opts  func(*ElectionOptions)
		found string
	}{
		{trips(10 * time.Second), plain, "round_trip warning"},
		{trips(10*time.Second + ms), plain, "round_trip fault"},
		{trips(1500 * ms), func(o *ElectionOptions) { o.Safety.EmptyHistoryWait = 30 * time.Second }, "round_trip ok"},
		{trips(1500*ms + ms), func(o *ElectionOptions) { o.Safety.EmptyHistoryWait = 30 * time.Second }, "round_trip warning"},
		{trips(31250 * time.Microsecond), plain, "round_trip ok"}, // four of them are half of EmptyHistoryWait
		{trips(31251 * time.Microsecond), plain, "round_trip warning"},
		{trips(ms, ms, ms, 40*ms, 40*ms), plain, "round_trip ok"}, // by the median
		{trips(ms, ms, 40*ms, 40*ms), plain, "round_trip warning"},
		{trips(40 * ms), func(o *ElectionOptions) { o.Safety.EmptyHistoryWait = -1 }, "round_trip ok"},
		{timeout(10 * time.Second), plain, "read_timeout ok"},
		{timeout(10*time.Second + ms), plain, "read_timeout warning"},
		{timeout(-1), plain, "read_timeout warning"},
		{pool(4), plain, "pool ok"},
		{pool(3), plain, "pool warning"},
		{version("6.2.0"), plain, "server ok"},
		{version("6.1.9"), plain, "server fault"},
		{version("5.9.9"), plain, "server fault"},
		{version("7.0.0"), plain, "server ok"},
		{apart(2 * time.Second), plain, "clock ok"},
		{apart(-2*time.Second - ms), plain, "clock note"},
		{apart(time.Minute), plain, "clock note"},
		{apart(time.Minute + ms), plain, "clock warning"},
		{rate(0.02, 0.011), plain, "clock ok"}, // it may be within what is allowed
		{rate(0.02, 0.009), plain, "clock fault"},
		{rate(0.001, 0.002), func(o *ElectionOptions) { o.Safety.DriftMargin = -1 }, "clock ok"},
		{rate(0.003, 0.002), func(o *ElectionOptions) { o.Safety.DriftMargin = -1 }, "clock fault"},
		{func(f *store.Facts) { f.Replicas = 1 }, margin(1), "failover ok"},
		{func(f *store.Facts) { f.Replicas = 1 }, margin(-1), "failover warning"},
		{func(f *store.Facts) { f.Settings["maxmemory"], f.Used = "9000000000", 8_999_999_999 }, plain, "eviction ok"},
		{func(f *store.Facts) { f.Settings["maxmemory"], f.Used = "9000000000", 9_000_000_000 }, plain, "eviction fault"},
		{func(f *store.Facts) { f.Settings["maxmemory"], f.Used = "1", 1 }, plain, "eviction fault"},
		{func(f *store.Facts) { delete(f.Settings, "appendonly") }, plain, "persistence unknown"},
	} {
		check, _, _ := strings.Cut(row.found, " ")
		var found []string
		for _, line := range diagnosed(t, row.facts, row.opts) {
			if level, _, _ := strings.Cut(line, ":"); strings.HasPrefix(level, check+" ") {
				found = append(found, level)
			}
		}
		require.Equal(t, []string{row.found}, found, "row %d", i)
	}
	roles := make([]ElectionOptions, 1601)
	for i := range roles {
		var c checker
		roles[i] = ElectionOptions{}.complete(&c, "")
	}
	f := soundFacts()
	f.RoundTrips = []time.Duration{25 * ms} // five are half of EmptyHistoryWait, for up to 1600 roles
	for n, level := range map[int]FindingLevel{1600: FindingOK, 1601: FindingWarning} {
		for _, finding := range diagnose(f, "shop", roles[:n]) {
			if finding.Check == "round_trip" {
				require.Equal(t, level, finding.Level, "%d roles: %s", n, finding.Text)
			}
		}
	}
}

// TestDoctorOfEveryRole: those of the process count, without a default role too; if there is none,
// the options do.
func TestDoctorOfEveryRole(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	defer rdb.Close()
	for _, none := range []bool{false, true} {
		c, err := New(rdb, Options{Namespace: "shop", NoDefaultRole: none, Election: ElectionOptions{LeaseTTL: 20 * time.Second}})
		require.NoError(t, err)
		c.backend.examine = func(context.Context, store.Bounded) store.Facts { return soundFacts() }
		says := func() string {
			for _, finding := range c.Doctor(t.Context()) {
				if finding.Check == "round_trip" {
					return finding.Text
				}
			}
			return ""
		}
		require.Equal(t, "1ms, at most 2ms, with a lease of 20s", says())
		_, err = c.AddRole("mailer", ElectionOptions{LeaseTTL: 25 * time.Second})
		require.NoError(t, err)
		require.Equal(t, map[bool]string{false: "1ms, at most 2ms, with a lease of 20s", true: "1ms, at most 2ms, with a lease of 25s"}[none], says())
		_, err = c.AddRole("quick", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(t, err)
		require.Equal(t, "1ms, at most 2ms, with a lease of 10s", says())
	}
}

// TestDoctorEndsWithItsContext: a client that ignores its context does not hold up Doctor, which
// then says so of what it has not found out.
func TestDoctorEndsWithItsContext(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		levels := func(d time.Duration) (levels []string) {
			ctx, cancel := context.WithTimeout(background, d)
			defer cancel()
			began := c.now()
			for _, f := range a.Doctor(ctx) {
				levels = append(levels, f.Check+" "+string(f.Level))
			}
			require.LessOrEqual(c, c.now()-began, d)
			return levels
		}
		require.Contains(c, levels(time.Minute), "rights ok")
		c.net.Partition("a", simnet.Both, 0)
		require.Equal(c, []string{"connection fault"}, levels(time.Second))
		c.net.Heal("a")
		c.pass(time.Minute)
		c.redis.Intercept(func(_, cmd string, _ []string) string {
			if strings.EqualFold(cmd, "info") {
				c.net.Partition("a", simnet.Both, 0)
			}
			return ""
		})
		require.Contains(c, levels(time.Second), "connection ok", "what it knows")
		c.net.Heal("a")
		c.pass(time.Minute)
	})
}

// TestControlRulesAreThoseAndMore: ControlRules begin with ACLRules.
func TestControlRulesAreThoseAndMore(t *testing.T) {
	_, err := ControlRules("")
	require.ErrorIs(t, err, ErrMisconfigured)
	base, err := ACLRules("shop", "leader:x")
	require.NoError(t, err)
	rules, err := ControlRules("shop", "leader:x")
	require.NoError(t, err)
	require.Equal(t, base, rules[:len(base)])
	require.Len(t, rules, len(base)+len(redisstore.ControlCommands))
	for _, command := range slices.Concat(redisstore.ScriptCommands, redisstore.ClientCommands) {
		require.Contains(t, base, "+"+command)
	}
	for i, command := range redisstore.ControlCommands {
		require.Equal(t, "+"+command, rules[len(base)+i])
	}
}

// TestDiagnosisOfEachElection: an election that is less careful than another one of the process is
// what is judged, whichever has the shorter lease.
func TestDiagnosisOfEachElection(t *testing.T) {
	careful := func(change func(*ElectionOptions)) ElectionOptions {
		o := ElectionOptions{LeaseTTL: 30 * time.Second, Safety: SafetyOptions{FailoverMargin: time.Second}}
		change(&o)
		var c checker
		o = o.complete(&c, "")
		require.NoError(t, c.err())
		return o
	}
	short := careful(func(*ElectionOptions) {})
	for check, row := range map[string]struct {
		facts func(*store.Facts)
		long  func(*ElectionOptions)
		level FindingLevel
	}{
		"persistence": {func(f *store.Facts) { f.Settings["appendonly"] = "no" }, func(o *ElectionOptions) { o.Safety.RestartGuard = -1 }, FindingWarning},
		"failover":    {func(f *store.Facts) { f.Replicas = 1 }, func(o *ElectionOptions) { o.Safety.FailoverMargin = 0 }, FindingWarning},
		"clock":       {func(f *store.Facts) { f.Rate = 0.009 }, func(o *ElectionOptions) { o.Safety.DriftMargin = time.Millisecond }, FindingFault},
		"round_trip": {
			func(f *store.Facts) { f.RoundTrips = []time.Duration{20 * time.Millisecond} },
			func(o *ElectionOptions) { o.Safety.EmptyHistoryWait = 100 * time.Millisecond }, FindingWarning,
		},
	} {
		long := careful(func(o *ElectionOptions) { o.LeaseTTL = time.Minute; row.long(o) })
		off := careful(func(o *ElectionOptions) { o.Safety.EmptyHistoryWait = -1 })
		for _, elections := range [][]ElectionOptions{{short, long}, {long, short}, {long}, {off, long}, {long, off}} {
			facts := soundFacts()
			row.facts(&facts)
			for _, finding := range diagnose(facts, "shop", elections) {
				if finding.Check == check {
					require.Equal(t, row.level, finding.Level, "%+v", finding)
				}
			}
		}
	}
}

// On a real server each check looks at what it says it looks at.
func TestDoctor(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	rdb := server.Client(t)
	ctx := t.Context()
	for _, setting := range [][2]string{{"maxmemory", "1gb"}, {"maxmemory-policy", "allkeys-lru"}} {
		require.NoError(t, rdb.ConfigSet(ctx, setting[0], setting[1]).Err())
	}
	require.NoError(t, rdb.HSet(ctx, "shop:eu:instances", "a", "{}").Err())
	require.NoError(t, rdb.HSet(ctx, "shop:instances", "a", "{}").Err())
	newCoordinator := func(rdb redis.UniversalClient, namespace string) *Coordinator {
		c, err := New(rdb, Options{Namespace: namespace, InstanceID: "me"})
		require.NoError(t, err)
		return c
	}
	levels := func(findings []Finding) map[string]FindingLevel {
		of := make(map[string]FindingLevel)
		for _, f := range findings {
			of[f.Check] = f.Level
			t.Logf("%-12s %-8s %s (%s)", f.Check, f.Level, f.Text, f.Fix)
		}
		return of
	}
	before, err := rdb.Keys(ctx, "*").Result()
	require.NoError(t, err)
	got := levels(newCoordinator(rdb, "shop").Doctor(ctx))
	require.Equal(t, FindingOK, got["connection"])
	require.Equal(t, FindingOK, got["scripts"])
	require.Equal(t, FindingOK, got["server"])
	require.Equal(t, FindingWarning, got["eviction"])
	require.Equal(t, FindingOK, got["failover"], "there is no replica")
	require.Equal(t, FindingOK, got["rights"])
	require.Equal(t, FindingNote, got["namespaces"])
	require.Equal(t, FindingOK, got["clock"])
	after, err := rdb.Keys(ctx, "*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, before, after, "it changes nothing")
	require.Equal(t, FindingNote, levels(newCoordinator(rdb, "shop:eu").Doctor(ctx))["namespaces"])

	rules, err := ACLRules("shop")
	require.NoError(t, err)
	require.NoError(t, rdb.Do(ctx, append([]any{"acl", "setuser", "app", "reset", "on", ">secret"}, anys(rules)...)...).Err())
	opts := *rdb.Options()
	opts.Username, opts.Password = "app", "secret"
	limited := redis.NewClient(&opts)
	defer limited.Close()
	findings := newCoordinator(limited, "shop").Doctor(ctx)
	got = levels(findings)
	require.Equal(t, FindingOK, got["rights"], "ACLRules allow all that an election needs")
	require.Equal(t, FindingWarning, got["eviction"], "INFO says it too")
	require.Equal(t, FindingUnknown, got["namespaces"])
	require.NoError(t, rdb.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	for _, client := range []*redis.Client{rdb, limited} {
		require.Equal(t, FindingFault, levels(newCoordinator(client, "shop").Doctor(ctx))["failover"], "every write is refused")
	}
	require.NoError(t, rdb.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	for _, f := range findings {
		require.NotContains(t, f.Text+f.Fix, "secret")
	}

	server.Kill(t)
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	findings = newCoordinator(rdb, "shop").Doctor(bounded)
	require.Len(t, findings, 1)
	require.Equal(t, FindingFault, levels(findings)["connection"])
}

func TestDoctorWithoutRedis(t *testing.T) {
	c, err := NewStandalone(Options{})
	require.NoError(t, err)
	findings := c.Doctor(t.Context())
	require.Len(t, findings, 1)
	require.Contains(t, findings[0].Text, "leads alone")
}

func anys(words []string) (all []any) {
	for _, word := range words {
		all = append(all, word)
	}
	return all
}

func TestACLRulesRefuseWhatIsNoName(t *testing.T) {
	_, err := ACLRules("")
	require.ErrorContains(t, err, `Namespace = "": must be set: use the name of the service`)
	for name, value := range hostile {
		_, err := ACLRules(value)
		require.ErrorIs(t, err, ErrMisconfigured, name)
		_, err = ACLRules("waf:cluster", value)
		require.ErrorIs(t, err, ErrMisconfigured, name)
	}
	rules, err := ACLRules("tenure", "leader:cleanup-worker")
	require.NoError(t, err)
	require.Subset(t, rules, []string{"~tenure:*", "&tenure:events", "&tenure:leader:events", "&tenure:leader:*:events", "&tenure:instance:*:events", "&leader:cleanup-worker:events", "~leader:cleanup-worker", "~leader:cleanup-worker:since", "~leader:cleanup-worker:term", "~leader:cleanup-worker:terms"})
}

// aclUser makes a client of a user with these rights and no others.
func aclUser(t *testing.T, server *redistest.Server, admin *redis.Client, rules []string) *redis.Client {
	t.Helper()
	args := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, admin.Do(t.Context(), args...).Err())
	require.NoError(t, admin.Do(t.Context(), "ACL", "LOG", "RESET").Err())
	opts := server.Options()
	opts.Username, opts.Password, opts.PoolSize = "app", "secret", 1
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// denied is what Redis refused to the user, by ACL LOG: commands, keys and channels.
func denied(t *testing.T, admin *redis.Client) (objects []string) {
	t.Helper()
	entries, err := admin.ACLLog(t.Context(), 100).Result()
	require.NoError(t, err)
	for _, entry := range entries {
		objects = append(objects, entry.Object)
	}
	return objects
}

// aclDeeds does all that tenure ever asks of Redis, in the namespace and beside it under a
// LeaderKey.
func aclDeeds(ctx context.Context, admin, rdb *redis.Client, namespace, leaderKey string) error {
	var c checker
	opts := Options{Namespace: namespace, InstanceID: "a"}.complete(&c)
	db, keys := newRedisStore(rdb, &c, opts), store.Keys(namespace)
	if err := c.err(); err != nil {
		return err
	}
	admin.FlushAll(ctx)
	admin.ScriptFlush(ctx)
	var problems []error
	do := func(_ any, err error) { problems = append(problems, err) }
	for _, key := range []string{"", leaderKey} {
		election := ElectionOptions{LeaderKey: key, Safety: SafetyOptions{RestartGuard: -1, EmptyHistoryWait: -1}}.complete(&c, "")
		role := db.ForRole(election.role(namespace, "a"))
		reply, err := role.Acquire(ctx, lease.Request{Nonce: "n", HoldOff: time.Second})
		do(reply, err)
		do(role.Acquire(ctx, lease.Request{Nonce: "n", HoldOff: time.Second})) // adopts
		admin.Del(ctx, election.leaseKey(namespace))
		do(role.Renew(ctx, lease.Request{Nonce: "n", Token: reply.Token, Origin: "another", HoldOff: time.Second})) // takes it back
		do(role.Renew(ctx, lease.Request{Nonce: "n", Token: reply.Token, Origin: reply.Origin, HoldOff: time.Second}))
		do(role.Leader(ctx))
		do(role.Release(ctx, lease.Request{Nonce: "n", Token: reply.Token}))
		do(role.Terms(ctx, 10))
		do(role.ForgetTerms(ctx, reply.Token))
	}
	do(db.Open(ctx, "t", store.TaskOpen{Token: 1}))
	do(db.Plan(ctx, "t", store.TaskPlan{Token: 1, Next: 1000, Spec: "s"}))
	do(db.Claim(ctx, "t", store.TaskClaim{Token: 1, Run: "r", Kind: store.ClaimSlot, Expect: "1000", Slot: 1000, Next: 2000, Spec: "s", Instance: "a", Attempt: 1}))
	do(db.Retry(ctx, "t", store.TaskRetry{Token: 1, Run: "r", Attempt: 2, Failures: 1, In: time.Second}))
	do(db.Finish(ctx, "t", store.TaskFinish{Token: 1, Run: "r", Status: store.RunSucceeded}))
	do(db.Cancel(ctx, "t", store.TaskCancel{Run: "r", For: time.Hour}))
	do(db.Pause(ctx, "t", true, "", ""))
	do(db.Pause(ctx, "t", false, "1", ""))
	do(db.Record(ctx, "t"))
	names, _, err := db.Names(ctx, 10)
	do(names, err)
	_, _, _, err = db.Records(ctx, []string{"t"})
	do(nil, err)
	do(db.Runs(ctx, "t", 10))
	admin.Set(ctx, keys.Lease(""), "b", time.Minute) // somebody leads, and does not know the task
	admin.Set(ctx, store.LeaseSince(keys.Lease("")), "1", time.Minute)
	admin.HSet(ctx, store.LeaseTerm(keys.Lease("")), "token", 1<<50)
	do(db.Forget(ctx, "t", store.TaskForget{Lease: keys.Lease("")}))
	admin.Del(ctx, keys.Lease(""), store.LeaseSince(keys.Lease("")), store.LeaseTerm(keys.Lease("")))

	beat := store.Heartbeat{ID: "a", Incarnation: "i", First: true, TTL: time.Minute, TakeOver: time.Minute, Head: `{"instance_id":"a","started_at":`, Rest: `,"status":"active","worker_count":1,"incarnation":"i"}`}
	do(db.Heartbeat(ctx, beat))
	do(db.Heartbeat(ctx, beat))
	admin.HSet(ctx, keys.Instances(), "foreign", `{"instance_id":"foreign","status":"active"}`)
	do(db.Scan(ctx, "0", true))
	do(db.Count(ctx, time.Minute, time.Hour))
	do(db.Adopt(ctx, "i", []string{"foreign"}))
	admin.ZAdd(ctx, keys.Beats(), redis.Z{Score: 5, Member: "a"}, redis.Z{Score: 9e15, Member: "foreign"})
	do(db.Look(ctx, store.Look{Silence: time.Minute}))
	sweep := store.Sweep{Drifted: time.Minute, Down: 1 << 60, Window: time.Minute, Mark: true, Remove: true, Incarnation: "i", IDs: []string{"a", "foreign"}}
	do(db.Sweep(ctx, sweep))
	sweep.Down = time.Hour
	do(db.Sweep(ctx, sweep)) // removes one and holds the other
	do(db.Sweep(ctx, sweep))
	beat.Metrics, beat.MetricsTTL = []store.Metric{{Name: "x", Value: 1}}, time.Minute
	do(db.Heartbeat(ctx, beat))
	do(db.Metrics(ctx, []string{"a"}))
	do(nil, db.Aggregate(ctx, "mark", []store.MetricSummary{{Name: "x", Instances: 1}}))
	do(db.Aggregates(ctx, 1))
	_, _, err = db.Instance(ctx, "a")
	do(nil, err)
	do(db.Remove(ctx, "a", "i"))
	do(db.Log(ctx, "", 10))
	do(db.LogEnd(ctx))
	do(db.LogTail(ctx, 10))

	command := store.Command{ID: "c", Instance: "a", Kind: "undrain"} // sent by whoever has the right to
	do(nil, admin.RPush(ctx, keys.Inbox("a"), "strange", command.Entry()).Err())
	do(nil, admin.HSet(ctx, keys.Command("c"), "state", store.CommandAsked, "until", 9e15).Err())
	do(db.ReadCommands(ctx, "a", []string{"strange"}))
	do(db.StartCommand(ctx, command, command.Entry(), "i"))
	do(nil, db.EndCommand(ctx, command, "i", store.CommandOutcome{State: store.CommandDone}))
	do(db.LookCommand(ctx, command, true))
	do(nil, db.NoteCommand(ctx, command, store.CommandOutcome{State: store.CommandDone}))
	do(db.CommandLog(ctx))

	do(nil, rdb.Publish(ctx, keys.Own("a"), "x").Err())
	named := ElectionOptions{Role: "cleanup", LeaderKey: ""}
	channels := []string{keys.Events(), store.LeaseEvents(keys.Lease("")), store.LeaseEvents(named.leaseKey(namespace)), leaderKey + ":events", keys.Own("a")}
	subscription := rdb.Subscribe(ctx, channels...)
	for range channels {
		message, err := subscription.Receive(ctx)
		do(message, err)
		if err != nil { // of the whole request: nothing more is answered
			_ = subscription.Close()
			return errors.Join(problems...)
		}
	}
	do(rdb.PubSubNumSub(ctx, channels...).Result())
	do(nil, subscription.Ping(ctx))
	do(subscription.Receive(ctx))
	do(nil, subscription.Unsubscribe(ctx))
	do(subscription.Receive(ctx))
	do(nil, subscription.Close())
	return errors.Join(problems...)
}

// TestACLRulesSuffice: a user with these rights is refused nothing.
func TestACLRulesSuffice(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	admin := server.Client(t)
	for _, namespace := range []string{"waf:cluster", "{waf}:cluster"} {
		rules, err := ACLRules(namespace, "leader:cleanup-worker")
		require.NoError(t, err)
		user := aclUser(t, server, admin, rules)
		require.NoError(t, aclDeeds(t.Context(), admin, user, namespace, "leader:cleanup-worker"))
		for _, object := range denied(t, admin) {
			require.Contains(t, object, "client|", "go-redis introduces itself, and does without")
		}
		for _, forbidden := range []error{
			user.Get(t.Context(), "other").Err(), user.Get(t.Context(), namespace+"x:leader").Err(), user.Publish(t.Context(), "other", "x").Err(),
			user.FlushAll(t.Context()).Err(), user.Keys(t.Context(), "*").Err(), user.ConfigGet(t.Context(), "*").Err(),
		} {
			require.ErrorContains(t, forbidden, "NOPERM")
		}
	}
}

// TestACLRulesAreAllNeeded: each right that is left out is missed, and the error of a script names
// it, unless tenure does without.
func TestACLRulesAreAllNeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	const namespace, key = "waf:cluster", "leader:cleanup-worker"
	lesser := []string{"publish", "info", "getrange"}         // features, and nothing that fails
	cluster := []string{"cluster|slots", "command", "asking"} // see the cluster's own test
	server := redistest.Start(t)
	admin := server.Client(t)
	rules, err := ACLRules(namespace, key)
	require.NoError(t, err)
	for i, rule := range rules {
		name := strings.TrimPrefix(rule, "+")
		if slices.Contains(cluster, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			user := aclUser(t, server, admin, slices.Delete(slices.Clone(rules), i, i+1))
			err := aclDeeds(t.Context(), admin, user, namespace, key)
			refused := denied(t, admin)
			require.NotEmpty(t, refused)
			if strings.HasPrefix(rule, "+") {
				require.Contains(t, refused, name)
			}
			if slices.Contains(lesser, name) || strings.HasPrefix(rule, "&") {
				return
			}
			if slices.Contains(redisstore.ScriptCommands, name) {
				require.ErrorIs(t, err, ErrMisconfigured)
				require.ErrorContains(t, err, "+"+name+" ")
			}
		})
	}
}

func ExampleACLRules() {
	rules, err := ACLRules("waf:cluster")
	if err != nil {
		panic(err)
	}
	fmt.Println("ACL SETUSER app reset on >password", strings.Join(rules[:7], " "), "…")
	// Output: ACL SETUSER app reset on >password ~waf:cluster:* &waf:cluster:events &waf:cluster:leader:events &waf:cluster:leader:*:events &waf:cluster:instance:*:events +time +info …
}

// TestNopermOfAConnection: some options of the client make go-redis send commands that ACLRules
// does not grant. The error names the right.
func TestNopermOfAConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	rules, err := ACLRules("tenure")
	require.NoError(t, err)
	admin := server.Client(t)
	args := []any{"acl", "setuser", "app", "reset", "on", ">secret"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, admin.Do(t.Context(), args...).Err())
	for right, change := range map[string]func(*redis.Options){
		"+select":         func(o *redis.Options) { o.DB = 1 },
		"+client|setname": func(o *redis.Options) { o.ClientName = "app" },
	} {
		t.Run(right, func(t *testing.T) {
			opts := *admin.Options()
			opts.Username, opts.Password = "app", "secret"
			change(&opts)
			rdb := redis.NewClient(&opts)
			defer func() { _ = rdb.Close() }()
			e, err := NewElector(rdb, ElectorOptions{Namespace: "tenure", InstanceID: "a", FailFast: true})
			require.NoError(t, err)
			err = e.Run(t.Context())
			require.ErrorIs(t, err, ErrMisconfigured)
			require.ErrorContains(t, err, "grant the Redis user "+right+",")
			require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", right).Err())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			e, err = NewElector(rdb, ElectorOptions{
				Namespace: "tenure", InstanceID: "a", FailFast: true,
				Election: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1}}, // else it waits until Redis is older than the lease
			})
			require.NoError(t, err)
			require.NoError(t, e.Run(ctx, func(context.Context, Term) error { cancel(); return nil }), "the named right is what was missing")
		})
	}
}
