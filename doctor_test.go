package tenure

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// soundFacts are those of a Redis in which nothing is wrong.
func soundFacts() store.Facts {
	return store.Facts{
		Client:  store.ClientFacts{Kind: "single", ReadTimeout: 3 * time.Second, DialTimeout: 5 * time.Second, PoolSize: 20},
		Version: "7.0.15", Role: "master", Uptime: time.Hour,
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
		"unreachable":     {no(store.ProbePing), defaults, "connection", FindingFault, "deadline exceeded"},
		"no scripts":      {no(store.ProbeScripts), defaults, "scripts", FindingFault, "deadline exceeded"},
		"a replica":       {func(f *store.Facts) { f.Role = "slave" }, defaults, "server", FindingFault, "is a replica"},
		"old":             {func(f *store.Facts) { f.Version = "6.0.16" }, defaults, "server", FindingFault, "too old"},
		"one of many":     {func(f *store.Facts) { f.Cluster = true; f.Settings["min-replicas-to-write"] = "1" }, defaults, "server", FindingFault, "this node only"},
		"evicts":          {func(f *store.Facts) { f.Settings["maxmemory"] = "1000"; f.Settings["maxmemory-policy"] = "allkeys-lru" }, defaults, "eviction", FindingWarning, "evicts leases"},
		"would evict":     {set("maxmemory-policy", "volatile-lru"), defaults, "eviction", FindingNote, "no maxmemory"},
		"policy unread":   {unset("maxmemory-policy"), defaults, "eviction", FindingUnknown, "cannot be read"},
		"snapshots":       {func(f *store.Facts) { f.Settings["appendonly"] = "no"; f.Settings["save"] = "3600 1" }, defaults, "persistence", FindingNote, "last snapshot"},
		"nothing kept":    {set("appendonly", "no"), defaults, "persistence", FindingNote, "keeps nothing"},
		"and no guard":    {set("appendonly", "no"), options(func(o *ElectionOptions) { o.Safety.RestartGuard = -1 }), "persistence", FindingWarning, "two may lead"},
		"a second master": {func(f *store.Facts) { f.Replicas = 1 }, defaults, "failover", FindingWarning, "two may lead"},
		"slow":            {func(f *store.Facts) { f.RoundTrips[2] = 2 * time.Second }, defaults, "round_trip", FindingWarning, "twentieth"},
		"too slow": {func(f *store.Facts) {
			f.RoundTrips[2], f.Client.ReadTimeout = 200*time.Millisecond, 50*time.Millisecond
		}, options(func(o *ElectionOptions) { o.LeaseTTL = 500 * time.Millisecond }), "round_trip", FindingFault, "given up"},
		"a slow roll-call": {
			func(f *store.Facts) { f.RoundTrips = []time.Duration{40 * time.Millisecond} }, defaults, "round_trip", FindingWarning, "roll-call",
		},
		"no time-out":    {func(f *store.Facts) { f.Client.ReadTimeout = 0 }, defaults, "read_timeout", FindingWarning, "without an end"},
		"long time-out":  {func(f *store.Facts) { f.Client.ReadTimeout = 11 * time.Second }, defaults, "read_timeout", FindingWarning, "third of the lease"},
		"small pool":     {func(f *store.Facts) { f.Client.PoolSize = 1 }, defaults, "pool", FindingWarning, "wait for each other"},
		"replica reads":  {func(f *store.Facts) { f.Client.FromReplicas = true }, defaults, "replica_reads", FindingNote, "may be behind"},
		"no info":        {no(store.ProbeInfo), defaults, "rights", FindingWarning, "not noticed"},
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
	f.Replicas, f.Settings["min-replicas-to-write"] = 2, "1"
	for _, finding := range diagnose(f, "shop", []ElectionOptions{defaults}) {
		require.Equal(t, FindingOK, finding.Level, "%+v", finding)
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
