package tenure

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

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
			require.NotRegexp(t, "[\x00-\x08\x0b-\x1f\x7f\u202e]", err.Error(), "what is told cannot steer a terminal")
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
	for name, legal := range map[string]bool{"host:8080": true, "{a}": false} {
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
	pipeliner, err := cluster.AutoPipeline()
	require.NoError(t, err)
	const none = "rdb = \"nil\": must be a go-redis client; without Redis use NewStandalone"
	for name, test := range map[string]struct {
		rdb  redis.UniversalClient
		opts Options
		says []string
	}{
		"client":            {client, Options{Namespace: "shop"}, nil},
		"nil":               {nil, Options{Namespace: "shop"}, []string{none}},
		"typed nil":         {(*redis.Client)(nil), Options{Namespace: "shop"}, []string{none}},
		"typed nil cluster": {(*redis.ClusterClient)(nil), Options{Namespace: "{a}"}, []string{none}},
		"ring":              {ring, Options{Namespace: "shop"}, []string{"rdb = \"*redis.Ring\": cannot be used"}},
		"cluster": {cluster, Options{Namespace: "waf", Election: ElectionOptions{LeaderKey: "leader:x"}}, []string{
			`Namespace = "waf": needs a {hash tag} on a Redis Cluster, and with any client but a *redis.Client, so that its keys share a slot: "{waf}"`,
			`Election.LeaderKey = "leader:x": needs a {hash tag} on a Redis Cluster,`, `so that its keys share a slot: "{leader:x}"`,
		}},
		"what may be a cluster": {pipeliner, Options{Namespace: "waf", Election: ElectionOptions{LeaderKey: "leader:x"}}, []string{
			`Namespace = "waf": needs a {hash tag}`, `Election.LeaderKey = "leader:x": needs a {hash tag}`,
		}},
		"what may be a cluster, with tags": {pipeliner, Options{Namespace: "{waf}"}, nil},
		"cluster with tags":                {cluster, Options{Namespace: "{waf}:a", Election: ElectionOptions{LeaderKey: "leader:{x}"}}, nil},
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
		require.NotContains(t, reservedRoles, o.Election.Role)
	})
}
