package tenure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// completed returns the options with their defaults, and what is wrong with them.
func completed(change func(*Options)) (Options, error) {
	o := Options{Namespace: "tenure"}
	change(&o)
	var c checker
	o = o.complete(&c)
	return o, c.err()
}

func TestDefaults(t *testing.T) {
	t.Setenv("HOSTNAME", "pod-7")
	o, err := completed(func(*Options) {})
	require.NoError(t, err)
	require.NotNil(t, o.random)
	require.Regexp(t, `^[0-9a-f]{32}$`, o.secret())
	first, second := o.secret(), o.secret()
	require.NotEqual(t, first, second)
	o.random, o.secret = nil, nil
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, Options{
		Namespace:  "tenure",
		InstanceID: "pod-7",
		Election: ElectionOptions{
			LeaseTTL: 30 * time.Second, RenewInterval: 10 * time.Second, RetryInterval: 15 * time.Second,
			Safety: SafetyOptions{DriftMargin: 300 * time.Millisecond, EmptyHistoryWait: 250 * time.Millisecond},
		},
		Registry: RegistryOptions{
			HeartbeatInterval: 15 * time.Second, HeartbeatTTL: 90 * time.Second, SweepInterval: 10 * time.Second,
			DriftedAfter: time.Minute, DownAfter: 5 * time.Minute, MinInstances: 1, MetricsInterval: 30 * time.Second, Host: host,
		},
		Tasks:           TaskOptions{History: 12, Shards: 8},
		ShutdownTimeout: 25 * time.Second,
	}, o)
	again, err := completed(func(p *Options) { *p = o })
	require.NoError(t, err)
	again.random, again.secret = nil, nil
	require.Equal(t, o, again, "completing is idempotent")
}

func TestDefaultsFollowTheTTL(t *testing.T) {
	o, err := completed(func(o *Options) { o.Election.LeaseTTL = minLeaseTTL })
	require.NoError(t, err, "every legal TTL has legal defaults")
	require.Equal(t, 100*time.Millisecond, o.Election.RenewInterval)
	require.Equal(t, 150*time.Millisecond, o.Election.RetryInterval)
	require.Equal(t, 10*time.Millisecond, o.Election.Safety.DriftMargin)
	for ttl := minLeaseTTL; ttl <= lease.MaxTTL; ttl += ttl/7 - ttl/7%time.Millisecond + time.Millisecond {
		_, err := completed(func(o *Options) { o.Election.LeaseTTL = ttl })
		require.NoError(t, err, "%v", ttl)
	}
}

func TestTimingOfOptions(t *testing.T) {
	o, err := completed(func(o *Options) { o.Election.Safety.DriftMargin, o.Election.Safety.HoldOff = -1, time.Hour })
	require.NoError(t, err)
	timing := o.Election.timing()
	require.Zero(t, timing.Drift, "negative: none")
	require.Equal(t, time.Hour, timing.HoldOff)
	require.Equal(t, 30*time.Second, timing.Penalty)
	require.Equal(t, 30*time.Second-lease.Rounding, timing.Life())
}

// TestSafetyOff: a negative value switches each of them off.
func TestSafetyOff(t *testing.T) {
	o, err := completed(func(o *Options) {
		o.Election.Safety = SafetyOptions{DriftMargin: -5, EmptyHistoryWait: -5, HoldOff: -5, RestartGuard: -5, FailoverMargin: -5}
	})
	require.NoError(t, err)
	timing, role := o.Election.timing(), o.Election.role("ns", "id")
	require.Zero(t, timing.Drift)
	require.Zero(t, timing.HoldOff)
	require.Zero(t, timing.Margin)
	require.Zero(t, role.HoldOff)
	require.Zero(t, role.Margin)
	require.Negative(t, role.RestartGuard, "zero would be the hold-off")
	require.LessOrEqual(t, role.EmptyWait, time.Duration(0))
}

const longest = time.Duration(math.MaxInt64)

// durations are the fields that are durations, each with values that are legal beside the defaults
// and values that are not.
var durations = map[string]struct {
	set   func(*Options, time.Duration)
	legal []time.Duration
	wrong []time.Duration
	says  string // about the wrong ones
}{
	"ShutdownTimeout": {
		func(o *Options, d time.Duration) { o.ShutdownTimeout = d },
		[]time.Duration{0, time.Millisecond, 24 * time.Hour},
		[]time.Duration{-1, 1, time.Millisecond - 1, 24*time.Hour + 1, longest}, "must be between 1ms and 24h0m0s",
	},
	"Election.LeaseTTL": {
		func(o *Options, d time.Duration) { o.Election.LeaseTTL = d },
		[]time.Duration{0, 300 * time.Millisecond, 24 * time.Hour},
		[]time.Duration{-1, 1, 300*time.Millisecond - 1, 24*time.Hour + 1, longest}, "must be between 300ms and 24h0m0s",
	},
	"Election.LeaseTTL of whole ms": {
		func(o *Options, d time.Duration) { o.Election.LeaseTTL = d },
		nil, []time.Duration{time.Second + 1, time.Second + 999*time.Microsecond}, "must be whole milliseconds",
	},
	"Election.RenewInterval": {
		func(o *Options, d time.Duration) { o.Election.RenewInterval = d },
		[]time.Duration{0, 10 * time.Millisecond, 13 * time.Second},
		[]time.Duration{-1, 1, 10*time.Millisecond - 1, 30*time.Second + 1, longest}, "must be between 10ms and 13.226s",
	},
	"Election.RenewInterval within L": {
		func(o *Options, d time.Duration) { o.Election.RenewInterval = d },
		[]time.Duration{13226 * time.Millisecond}, // (29.698 s − 0.6 s)/2/1.1
		[]time.Duration{13227 * time.Millisecond, 15 * time.Second, 30 * time.Second},
		"must be between 10ms and 13.226s with LeaseTTL = 30s and DriftMargin = 300ms: two renewals must fit before the term would be cancelled",
	},
	"Election.RetryInterval": {
		func(o *Options, d time.Duration) { o.Election.RetryInterval = d },
		[]time.Duration{0, 10 * time.Millisecond, 30 * time.Second},
		[]time.Duration{-1, 1, 30*time.Second + 1, longest}, "must be between 10ms and 30s",
	},
	"Election.Preempt": {
		func(o *Options, d time.Duration) { o.Election.Preempt = d },
		[]time.Duration{0, time.Minute, longest},
		[]time.Duration{-1, 1, time.Minute - 1}, "must be zero (a better candidate waits), or at least 2 · LeaseTTL = 1m0s",
	},
	"Election.Safety.DriftMargin": {
		func(o *Options, d time.Duration) { o.Election.Safety.DriftMargin = d },
		[]time.Duration{0, -1, -longest, 1, 7 * time.Second},
		[]time.Duration{15*time.Second + 1, longest}, "must be at most LeaseTTL/2 = 15s",
	},
	"Election.Safety.EmptyHistoryWait": {
		func(o *Options, d time.Duration) { o.Election.Safety.EmptyHistoryWait = d },
		[]time.Duration{0, -1, -longest, 1, 24 * time.Hour},
		[]time.Duration{24*time.Hour + 1, longest}, "must be at most 24h0m0s",
	},
	"Election.Safety.HoldOff": {
		func(o *Options, d time.Duration) { o.Election.Safety.HoldOff = d },
		[]time.Duration{0, -1, -longest, 1, 24 * time.Hour},
		[]time.Duration{24*time.Hour + 1, longest}, "must be at most 24h0m0s",
	},
	"Election.Safety.RestartGuard": {
		func(o *Options, d time.Duration) { o.Election.Safety.RestartGuard = d },
		[]time.Duration{0, -1, -longest, 1, 24 * time.Hour},
		[]time.Duration{24*time.Hour + 1, longest}, "must be at most 24h0m0s",
	},
	"Election.Safety.FailoverMargin": {
		func(o *Options, d time.Duration) { o.Election.Safety.FailoverMargin = d },
		[]time.Duration{0, -1, -longest, 1, 10*time.Second - 1},
		[]time.Duration{10 * time.Second, 30 * time.Second, longest},
		"FailoverMargin + RenewInterval (10s) + LeaseTTL/3 (10s) must be below LeaseTTL (30s)",
	},
	"Registry.HeartbeatInterval": {
		func(o *Options, d time.Duration) { o.Registry.HeartbeatInterval = d },
		[]time.Duration{0, -1, -longest, 100 * time.Millisecond, 30 * time.Second},
		[]time.Duration{1, 100*time.Millisecond - 1, 30*24*time.Hour + 1, longest}, "must be between 100ms and 360h0m0s",
	},
	"Registry.HeartbeatTTL": {
		func(o *Options, d time.Duration) { o.Registry.HeartbeatTTL = d },
		[]time.Duration{0, 30 * time.Second, 30 * 24 * time.Hour},
		[]time.Duration{-1, 1, 30*24*time.Hour + 1, longest}, "must be between 1s and 720h0m0s",
	},
	"Registry.HeartbeatTTL of whole seconds": {
		func(o *Options, d time.Duration) { o.Registry.HeartbeatTTL = d },
		nil, []time.Duration{90*time.Second + 1, 90*time.Second + 500*time.Millisecond}, "must be whole seconds",
	},
	"Registry.HeartbeatTTL of two beats": {
		func(o *Options, d time.Duration) { o.Registry.HeartbeatTTL = d },
		nil, []time.Duration{time.Second, 29 * time.Second}, "must be at least 2 · HeartbeatInterval = 30s",
	},
	"Registry.SweepInterval": {
		func(o *Options, d time.Duration) { o.Registry.SweepInterval = d },
		[]time.Duration{0, -1, -longest, 100 * time.Millisecond, 30 * 24 * time.Hour},
		[]time.Duration{1, 30*24*time.Hour + 1, longest}, "must be between 100ms and 720h0m0s",
	},
	"Registry.DriftedAfter": {
		func(o *Options, d time.Duration) { o.Registry.DriftedAfter = d },
		[]time.Duration{0, 30 * time.Second, 5*time.Minute - 1},
		[]time.Duration{-1, 1, 30*24*time.Hour + 1, longest}, "must be between 200ms and 720h0m0s",
	},
	"Registry.DriftedAfter of two beats": {
		func(o *Options, d time.Duration) { o.Registry.DriftedAfter = d },
		nil, []time.Duration{29 * time.Second}, "must be at least 2 · HeartbeatInterval = 30s",
	},
	"Registry.DownAfter": {
		func(o *Options, d time.Duration) { o.Registry.DownAfter = d },
		[]time.Duration{0, time.Minute + 1, 30 * 24 * time.Hour},
		[]time.Duration{-1, 1, 30*24*time.Hour + 1, longest}, "must be between 200ms and 720h0m0s",
	},
	"Registry.DownAfter above DriftedAfter": {
		func(o *Options, d time.Duration) { o.Registry.DownAfter = d },
		nil, []time.Duration{time.Minute, time.Second}, "must be above DriftedAfter = 1m0s",
	},
}

func TestDurations(t *testing.T) {
	for name, test := range durations {
		field, _, _ := strings.Cut(name, " ")
		for _, d := range test.legal {
			_, err := completed(func(o *Options) { test.set(o, d) })
			require.NoError(t, err, "%s = %d ns", name, d)
		}
		for _, d := range test.wrong {
			_, err := completed(func(o *Options) { test.set(o, d) })
			require.ErrorIs(t, err, ErrMisconfigured, "%s = %d ns", name, d)
			var problem *OptionError
			require.ErrorAs(t, err, &problem)
			require.ErrorContains(t, err, fmt.Sprintf("%s = %v: ", field, d))
			require.ErrorContains(t, err, test.says, "%s = %d ns", name, d)
		}
	}
}

func TestRelationsOfAShortLease(t *testing.T) {
	_, err := completed(func(o *Options) {
		o.Election.LeaseTTL, o.Election.RenewInterval, o.Election.RetryInterval = time.Second, 3*time.Second, 2*time.Second
		o.Election.Safety.FailoverMargin = 500 * time.Millisecond
	})
	require.ErrorContains(t, err, "Election.RenewInterval = 3s: must be between 10ms and 426ms with LeaseTTL = 1s")
	require.ErrorContains(t, err, "Election.RetryInterval = 2s: must be between 10ms and 1s")
	require.NotContains(t, err.Error(), "FailoverMargin", "what follows from another problem is not one more")
}

func TestOtherOptions(t *testing.T) {
	pairs := func(n, size int) map[string]string {
		m := make(map[string]string)
		for i := range n {
			m[fmt.Sprintf("%03d", i)] = strings.Repeat("x", size)
		}
		return m
	}
	for name, test := range map[string]struct {
		change func(*Options)
		says   string // "": nothing is wrong
	}{
		"no workers named":   {func(o *Options) { o.Registry.WorkerCount = 0 }, ""},
		"most workers":       {func(o *Options) { o.Registry.WorkerCount = 1 << 20 }, ""},
		"too many workers":   {func(o *Options) { o.Registry.WorkerCount = 1<<20 + 1 }, "Registry.WorkerCount = 1048577: must be between 0 and 1048576"},
		"negative workers":   {func(o *Options) { o.Registry.WorkerCount = -1 }, "Registry.WorkerCount = -1: "},
		"most pairs":         {func(o *Options) { o.Registry.Metadata = pairs(32, 125) }, ""},
		"too many pairs":     {func(o *Options) { o.Registry.Metadata = pairs(33, 1) }, "Registry.Metadata = 33 pairs, 132 bytes: must have at most 32 pairs"},
		"too many bytes":     {func(o *Options) { o.Registry.Metadata = pairs(1, 4094) }, "Registry.Metadata = 1 pairs, 4097 bytes: "},
		"nil work":           {func(o *Options) { o.Election.Lead = []LeadFunc{nil} }, "Election.Lead[0] = nil: must be a function"},
		"no beats, no sweep": {func(o *Options) { o.Registry.HeartbeatInterval, o.Registry.SweepInterval = -1, -1 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := completed(test.change)
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrMisconfigured)
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestMetadataIsCopied(t *testing.T) {
	metadata := map[string]string{"zone": "a"}
	o, err := completed(func(o *Options) { o.Registry.Metadata = metadata })
	require.NoError(t, err)
	metadata["zone"] = "b"
	require.Equal(t, "a", o.Registry.Metadata["zone"])
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := New(nil, Options{
		Namespace: "a b", InstanceID: "ü", ShutdownTimeout: -1,
		Election: ElectionOptions{
			Role: "since", LeaderKey: "{}", LeaseTTL: -1, Lead: []LeadFunc{nil},
			Safety: SafetyOptions{HoldOff: longest, EmptyHistoryWait: longest, RestartGuard: longest},
		},
		Registry: RegistryOptions{HeartbeatInterval: 1, HeartbeatTTL: 1, SweepInterval: 1, DriftedAfter: 1, WorkerCount: -1},
	})
	require.ErrorIs(t, err, ErrMisconfigured)
	var all optionErrors
	require.ErrorAs(t, err, &all)
	var fields []string
	for _, problem := range all {
		fields = append(fields, problem.Field)
		require.ErrorIs(t, problem, ErrMisconfigured)
	}
	require.Equal(t, []string{
		"Namespace", "InstanceID", "ShutdownTimeout",
		"Election.Role", "Election.LeaderKey", "Election.Lead[0]", "Election.Safety.EmptyHistoryWait", "Election.Safety.HoldOff", "Election.Safety.RestartGuard",
		"Election.LeaseTTL",
		"Registry.WorkerCount", "Registry.HeartbeatInterval", "Registry.HeartbeatTTL", "Registry.SweepInterval", "Registry.DriftedAfter", "rdb",
	}, fields)
	require.Len(t, strings.Split(err.Error(), "\n"), len(fields)+1, "one a line")
}

// TestNamespaceIsRequired: with a default, two services that forgot theirs would elect one leader
// between them. Without Redis there is nobody to share one with.
// TestPriorityHasNoRelationToTheLease: so it is refused beside a LeaseTTL that is out of range, to
// which the other settings are relations.
func TestPriorityHasNoRelationToTheLease(t *testing.T) {
	_, err := completed(func(o *Options) { o.Election.LeaseTTL, o.Election.Priority = time.Millisecond, -1001 })
	require.ErrorContains(t, err, "Election.LeaseTTL")
	require.ErrorContains(t, err, "Election.Priority")
}

func TestNamespaceIsRequired(t *testing.T) {
	_, err := completed(func(o *Options) { o.Namespace = "" })
	var all optionErrors
	require.ErrorAs(t, err, &all)
	require.Len(t, all, 1)
	require.Equal(t, "Namespace", all[0].Field)
	require.ErrorContains(t, err, "the name of the service")
	_, err = NewStandalone(Options{})
	require.NoError(t, err)
	_, err = NewStandalone(Options{Namespace: "*"})
	require.ErrorIs(t, err, ErrMisconfigured)
}

// A namespace that another one's keys of roles, tasks or instances begin with would share keys with
// that.
func TestNamespaceWithinAnother(t *testing.T) {
	for name, refused := range map[string]bool{
		"app:task": true, "app:leader:x": true, "app:instance": true, "a:b:task": true, "{app}:task": true,
		"task": false, "leader": false, "app:tasks": false, "{app:task}": false, "waf:cluster": false,
	} {
		var c checker
		Options{Namespace: name}.complete(&c)
		require.Equal(t, refused, c.err() != nil, name)
		if refused {
			require.ErrorContains(t, c.err(), "of Namespace")
		}
	}
}

// hostile names are no instance ID, no role, no namespace and no key.
var hostile = map[string]string{
	"newline": "a\nb", "trailing newline": "a\n", "NUL": "a\x00", "empty tag": "{}", "star": "*", "ANSI": "\x1b[31mred", "right-to-left": "a\u202eb",
	"10 KB": strings.Repeat("x", 10<<10), "bad UTF-8": "a\xff", "space": "a b", "129": strings.Repeat("x", 129), "two tags": "{a}{b}",
	"open tag": "{a", "closed tag": "a}", "nested": "{{a}}", "slash": "a/b", "letter": "é", "quote": `a"b`, "backslash": `a\b`, "percent": "%s%d",
}

func TestHostileNames(t *testing.T) {
	for name, value := range hostile {
		for field, set := range map[string]func(*Options){
			"Namespace":          func(o *Options) { o.Namespace = value },
			"InstanceID":         func(o *Options) { o.InstanceID = value },
			"Election.Role":      func(o *Options) { o.Election.Role = value },
			"Election.LeaderKey": func(o *Options) { o.Election.LeaderKey = value },
		} {
			_, err := completed(set)
			var problem *OptionError
			require.ErrorAs(t, err, &problem, "%s, %s", name, field)
			require.Equal(t, field, problem.Field, name)
			require.Less(t, len(err.Error()), 1000, "a long value is cut")
			require.NotRegexp(t, "[\x00-\x08\x0b-\x1f\x7f\u202e]", err.Error(), "the text cannot steer a terminal")
			require.True(t, utf8.ValidString(err.Error()))
		}
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"a", "A-Z_a.z:0", strings.Repeat("x", 128), "{tag}", "waf:{cluster}", "{a}:b", "since"} {
		_, err := completed(func(o *Options) { o.Namespace = name })
		require.NoError(t, err, name)
		_, err = completed(func(o *Options) { o.Election.LeaderKey = name })
		require.NoError(t, err, name)
	}
	for name, legal := range map[string]bool{
		"": true, "cleanup": true, "a.b-c_d": true, "since1": true, strings.Repeat("x", 128): true, "since": false, "term": false, "terms": false, "events": false, "a:b": false, "{a}": false,
	} {
		_, err := completed(func(o *Options) { o.Election.Role = name })
		require.Equal(t, legal, err == nil, name)
	}
	for name, legal := range map[string]bool{"host:8080": true, "{a}": false, ".": false, "..": false, "...": true, ".a": true} {
		_, err := completed(func(o *Options) { o.InstanceID = name })
		require.Equal(t, legal, err == nil, name)
	}
}

func TestDefaultInstanceID(t *testing.T) {
	for _, test := range []struct {
		env, host string
		err       error
		want      string
	}{
		{"pod-7", "host", nil, "pod-7"},
		{"", "host", nil, "host-42"},
		{"", "host", errBroken, "unknown-42"},
		{"", "", nil, "unknown-42"},
		{"", "a host", nil, "unknown-42"},
		{"a pod", "host", nil, "a pod"}, // what somebody set is not corrected: it is refused
	} {
		id := defaultInstanceID(test.env, func() (string, error) { return test.host, test.err }, 42)
		require.Equal(t, test.want, id)
	}
	t.Setenv("HOSTNAME", "a pod")
	_, err := completed(func(*Options) {})
	require.ErrorContains(t, err, `InstanceID = "a pod"`)
}

func TestClients(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	wrapped := struct{ redis.UniversalClient }{cluster}
	const none = "rdb = nil: must be a go-redis client; without Redis use NewStandalone"
	for name, test := range map[string]struct {
		rdb  redis.UniversalClient
		opts ElectorOptions
		says []string
	}{
		"client":            {client, ElectorOptions{Namespace: "shop"}, nil},
		"nil":               {nil, ElectorOptions{Namespace: "shop"}, []string{none}},
		"typed nil":         {(*redis.Client)(nil), ElectorOptions{Namespace: "shop"}, []string{none}},
		"typed nil cluster": {(*redis.ClusterClient)(nil), ElectorOptions{Namespace: "{a}"}, []string{none}},
		"ring":              {ring, ElectorOptions{Namespace: "shop"}, []string{"rdb = *redis.Ring: cannot be used"}},
		"cluster": {cluster, ElectorOptions{Namespace: "waf", Election: ElectionOptions{LeaderKey: "leader:x"}}, []string{
			`Namespace = "waf": needs a {hash tag} on a Redis Cluster, and with any client but a *redis.Client, so that its keys share a slot: "{waf}"`,
			`Election.LeaderKey = "leader:x": needs a {hash tag} on a Redis Cluster,`, `so that its keys share a slot: "{leader:x}"`,
		}},
		"what may be a cluster": {wrapped, ElectorOptions{Namespace: "waf", Election: ElectionOptions{LeaderKey: "leader:x"}}, []string{
			`Namespace = "waf": needs a {hash tag}`, `Election.LeaderKey = "leader:x": needs a {hash tag}`,
		}},
		"what may be a cluster, with tags": {wrapped, ElectorOptions{Namespace: "{waf}"}, nil},
		"cluster with tags":                {cluster, ElectorOptions{Namespace: "{waf}:a", Election: ElectionOptions{LeaderKey: "leader:{x}"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			test.opts.InstanceID = "me"
			_, err := NewElector(test.rdb, test.opts)
			if test.says == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrMisconfigured)
			for _, says := range test.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}

// FuzzNames: what the constructor lets through cannot break a key, a log line or a JSON text.
func FuzzNames(f *testing.F) {
	for _, name := range hostile {
		f.Add(name)
	}
	for _, name := range []string{"", "a", "{a}b", "since", "host:80"} {
		f.Add(name)
	}
	safe := regexp.MustCompile(`^[A-Za-z0-9._:-]*(\{[A-Za-z0-9._:-]+\})?[A-Za-z0-9._:-]*$`)
	f.Fuzz(func(t *testing.T, name string) {
		o, err := completed(func(o *Options) {
			o.Namespace, o.InstanceID, o.Election.Role, o.Election.LeaderKey = name, name, name, "leader:"+name
		})
		if err != nil {
			require.ErrorIs(t, err, ErrMisconfigured)
			require.Less(t, len(err.Error()), 8000)
			require.True(t, utf8.ValidString(err.Error()))
			return
		}
		for _, name := range []string{o.Namespace, o.InstanceID, o.Election.Role, o.Election.LeaderKey} {
			require.LessOrEqual(t, len(name), 128)
			require.Regexp(t, safe, name)
		}
		require.NotContains(t, store.ReservedRoles, o.Election.Role)
	})
}

// FuzzOptions: options that are accepted keep every relation that the promises rest on; those that
// are refused say which field.
func FuzzOptions(f *testing.F) {
	f.Add("waf:cluster", "a", "role", "", int64(30*time.Second), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0))
	f.Add("", "a", "", "", int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0))
	f.Add("{x}", "h-1", "", "leader:x", int64(300*time.Millisecond), int64(100*time.Millisecond), int64(-1), int64(1), int64(1<<62), int64(-1<<63), int64(1), int64(1<<63-1), int64(7))
	f.Fuzz(func(t *testing.T, namespace, id, role, key string, ttl, renew, retry, drift, margin, hold, beat, drifted, down int64) {
		opts := Options{
			Namespace: namespace, InstanceID: id,
			Election: ElectionOptions{
				Role: role, LeaderKey: key, LeaseTTL: time.Duration(ttl), RenewInterval: time.Duration(renew), RetryInterval: time.Duration(retry),
				Safety: SafetyOptions{DriftMargin: time.Duration(drift), FailoverMargin: time.Duration(margin), HoldOff: time.Duration(hold)},
			},
			Registry: RegistryOptions{HeartbeatInterval: time.Duration(beat), DriftedAfter: time.Duration(drifted), DownAfter: time.Duration(down)},
		}
		var c checker
		done := opts.complete(&c)
		if err := c.err(); err != nil {
			var problem *OptionError
			require.True(t, errors.As(err, &problem) && problem.Field != "" && problem.Reason != "")
			require.ErrorIs(t, err, ErrMisconfigured)
			require.NotContains(t, err.Error(), "\x1b")
			return
		}
		e, timing := done.Election, done.Election.timing()
		require.True(t, e.LeaseTTL >= minLeaseTTL && e.LeaseTTL <= lease.MaxTTL && e.LeaseTTL%time.Millisecond == 0)
		require.LessOrEqual(t, e.RenewInterval/10*11, (timing.Life()-timing.Guard())/2)
		require.Less(t, e.Safety.FailoverMargin+e.RenewInterval+timing.Attempt(), e.LeaseTTL)
		require.Positive(t, timing.Life()-timing.Guard())
		require.Positive(t, e.RetryInterval)
		if r := done.Registry; r.HeartbeatInterval > 0 {
			require.True(t, r.DriftedAfter >= 2*r.HeartbeatInterval && r.DownAfter > r.DriftedAfter && r.HeartbeatTTL >= 2*r.HeartbeatInterval)
		}
		require.Regexp(t, store.IDPattern, done.InstanceID)
		require.NotContains(t, done.Namespace, "*")
	})
}

// FuzzKeys: names that are accepted lead to keys that no two things share, and on a cluster to one
// slot.
func FuzzKeys(f *testing.F) {
	f.Add("{waf}:a", "leader", "a", "b", "x:heartbeat", "x")
	f.Add("tenure", "", "runs", "x.runs", "a", "a:metrics")
	f.Add("a:{b}:c", "x", "term", "sinces", "instance", "leader:x")
	f.Fuzz(func(t *testing.T, namespace, role, task, otherTask, id, otherID string) {
		var c checker
		c.namespace("Namespace", namespace)
		ElectionOptions{Role: role}.complete(&c, "")
		accepted := store.RolePattern.MatchString(task) && store.RolePattern.MatchString(otherTask) && store.IDPattern.MatchString(id) && store.IDPattern.MatchString(otherID)
		if c.err() != nil || !accepted || task == otherTask || id == otherID {
			return
		}
		k := store.Keys(namespace)
		all := []string{
			k.Instances(), k.Beats(), k.Hold(), k.Tasks(), k.Heartbeat(id), k.Heartbeat(otherID), k.Task(task), k.Task(otherTask),
			k.Runs(task), k.Runs(otherTask), k.Lease(""), k.Lease("") + ":since", k.Lease("") + ":term",
		}
		if role != "" {
			all = append(all, k.Lease(role), k.Lease(role)+":since", k.Lease(role)+":term")
		}
		hashed, seen := map[string]bool{}, map[string]bool{}
		for _, key := range all {
			require.False(t, seen[key], key)
			seen[key] = true
			hashed[store.HashTag(key)] = true
		}
		if store.TagPattern.MatchString(namespace) {
			require.Len(t, hashed, 1)
		}
	})
}

// TestOptionsInEffect: the options of a coordinator can be read. They are a copy, hold no secret,
// and make the same coordinator again.
func TestOptionsInEffect(t *testing.T) {
	t.Setenv("HOSTNAME", "pod-7")
	client := redis.NewClient(&redis.Options{})
	defer func() { _ = client.Close() }()
	lead := func(context.Context, Term) error { return nil }
	c, err := New(client, Options{
		Namespace: "shop", Election: ElectionOptions{Lead: []LeadFunc{lead}}, Registry: RegistryOptions{Metadata: map[string]string{"a": "b"}},
		Tasks: TaskOptions{Middleware: []func(TaskFunc) TaskFunc{func(next TaskFunc) TaskFunc { return next }}},
	})
	require.NoError(t, err)
	o := c.Options()
	require.Equal(t, "pod-7", o.InstanceID)
	require.Equal(t, 30*time.Second, o.Election.LeaseTTL)
	require.Equal(t, 300*time.Millisecond, o.Election.Safety.DriftMargin)
	require.Len(t, o.Election.Lead, 1, "what tenure adds is not there")
	require.Nil(t, o.secret)
	require.Nil(t, o.random)
	o.Registry.Metadata["a"], o.Election.Lead[0], o.Tasks.Middleware[0] = "c", nil, nil
	o = c.Options()
	require.Equal(t, "b", o.Registry.Metadata["a"])
	require.NotNil(t, o.Election.Lead[0])
	require.NotNil(t, o.Tasks.Middleware[0])
	again, err := New(client, o)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(o), fmt.Sprint(again.Options()))
}

// TestOptionsAreCopied: what the caller does with its slices afterwards changes nothing.
func TestOptionsAreCopied(t *testing.T) {
	work := []LeadFunc{func(context.Context, Term) error { return nil }}
	wraps := []func(TaskFunc) TaskFunc{func(next TaskFunc) TaskFunc { return next }}
	c, err := NewStandalone(Options{Election: ElectionOptions{Lead: work}, Tasks: TaskOptions{Middleware: wraps}})
	require.NoError(t, err)
	work[0], wraps[0] = nil, nil
	require.NotNil(t, c.Options().Election.Lead[0])
	require.NotNil(t, c.Options().Tasks.Middleware[0])
	require.NoError(t, c.Tasks().Register(Task{Name: "t", Schedule: Every(time.Hour), Run: noTask}))
}
