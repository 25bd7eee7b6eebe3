package tenure_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// environ sets variables, given as NAME=value, after the prefix SHOP_.
func environ(t *testing.T, variables ...string) {
	t.Helper()
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv("SHOP_"+name, value)
	}
}

func TestOptionsFromEnv(t *testing.T) {
	environ(t, "NAMESPACE=shop", "INSTANCE_ID=a", "LEASE_TTL=12s", "FAILOVER_MARGIN=2s", "RESTART_GUARD=-1s", "WORKER_COUNT=4",
		"METADATA=zone=eu, rack=7", "FAIL_FAST=true", "HEARTBEAT_INTERVAL=5s", "SHUTDOWN_TIMEOUT=",
		"ELIGIBLE=false", "PRIORITY=-3", "PREEMPT=1m", "SPREAD=true", "BY_INSTANCE_ID=1", "ADDRESS=10.0.0.7:80", "VERSION=1.4.2", "WORKER_ID=2",
		"ROLES=gateway, worker", "CAPABILITIES=gpu", "REDIS_URL=redis://app:old@redis.example:6380/3", "REDIS_PASSWORD=new")
	read, err := tenure.OptionsFromEnv("SHOP")
	require.NoError(t, err)
	defer read.Redis.Close()
	require.Equal(t, tenure.EnvElect, read.Mode)
	require.Equal(t, tenure.Options{
		Namespace: "shop", InstanceID: "a", FailFast: true,
		Election: tenure.ElectionOptions{
			LeaseTTL: 12 * time.Second, Priority: -3, Preempt: time.Minute, Spread: true, ByInstanceID: true, Ineligible: true,
			Safety: tenure.SafetyOptions{FailoverMargin: 2 * time.Second, RestartGuard: -time.Second},
		},
		Registry: tenure.RegistryOptions{
			HeartbeatInterval: 5 * time.Second, WorkerCount: 4, WorkerID: 2, Address: "10.0.0.7:80", Version: "1.4.2",
			Roles: []string{"gateway", "worker"}, Capabilities: []string{"gpu"}, Metadata: map[string]string{"zone": "eu", "rack": "7"},
		},
	}, read.Options)
	opts := read.Redis.(*redis.Client).Options()
	require.Equal(t, []any{"redis.example:6380", "app", "new", 3, 1200 * time.Millisecond, true},
		[]any{opts.Addr, opts.Username, opts.Password, opts.DB, opts.ReadTimeout, opts.ContextTimeoutEnabled})
	c, err := read.New()
	require.NoError(t, err)
	require.Equal(t, 12*time.Second, c.Options().Election.LeaseTTL)
}

// TestAddressFromEnv: a platform gives the IP address, and not whether it needs brackets.
func TestAddressFromEnv(t *testing.T) {
	for host, want := range map[string]string{"10.0.0.7": "http://10.0.0.7:8080", "fd00::7": "http://[fd00::7]:8080", "web-1.shop": "http://web-1.shop:8080"} {
		t.Run(host, func(t *testing.T) {
			environ(t, "NAMESPACE=shop", "ADDRESS_HOST="+host, "ADDRESS_PORT=8080")
			read, err := tenure.OptionsFromEnv("SHOP")
			require.NoError(t, err)
			require.Equal(t, want, read.Options.Registry.Address)
			_, err = read.New()
			require.NoError(t, err)
		})
	}
	for _, port := range []string{"1", "65535"} {
		t.Run(port, func(t *testing.T) {
			environ(t, "NAMESPACE=shop", "ADDRESS_HOST=a", "ADDRESS_PORT="+port)
			read, err := tenure.OptionsFromEnv("SHOP")
			require.NoError(t, err)
			require.Equal(t, "http://a:"+port, read.Options.Registry.Address)
		})
	}
	t.Run("TLS", func(t *testing.T) {
		environ(t, "NAMESPACE=shop", "ADDRESS_HOST=fd00::7", "ADDRESS_PORT=8443", "ADDRESS_SCHEME=https")
		read, err := tenure.OptionsFromEnv("SHOP")
		require.NoError(t, err)
		require.Equal(t, "https://[fd00::7]:8443", read.Options.Registry.Address)
	})
	for _, refused := range [][]string{
		{"ADDRESS_SCHEME=https"}, {"ADDRESS_SCHEME=https", "ADDRESS=b:80"}, {"ADDRESS_HOST=a", "ADDRESS_PORT=80", "ADDRESS_SCHEME=HTTPS"},
		{"ADDRESS_HOST=a"}, {"ADDRESS_PORT=80"}, {"ADDRESS_HOST=a", "ADDRESS_PORT=0"}, {"ADDRESS_HOST=a", "ADDRESS_PORT=65536"}, {"ADDRESS_HOST=a", "ADDRESS_PORT=+80"}, {"ADDRESS_HOST=a", "ADDRESS_PORT=http"}, {"ADDRESS_HOST=a", "ADDRESS_PORT=80", "ADDRESS=b:80"},
		{"ADDRESS_HOST=http://a", "ADDRESS_PORT=80"}, {"ADDRESS_HOST=a:80", "ADDRESS_PORT=80"}, {"ADDRESS_HOST=[::1]", "ADDRESS_PORT=80"},
	} {
		t.Run(strings.Join(refused, " "), func(t *testing.T) {
			environ(t, append(refused, "NAMESPACE=shop")...)
			_, err := tenure.OptionsFromEnv("SHOP")
			require.ErrorIs(t, err, tenure.ErrMisconfigured)
			require.ErrorContains(t, err, "SHOP_ADDRESS_")
			require.LessOrEqual(t, strings.Count(err.Error(), "SHOP_ADDRESS_PORT = "), 1, "%v", err)
		})
	}
}

// TestPortsOfKubernetes: it sets <SERVICE>_PORT in each pod for each Service of the namespace, so
// for one that is called shop-redis a variable of ours, which nobody has written.
func TestPortsOfKubernetes(t *testing.T) {
	links := []string{"REDIS_PORT=tcp://10.96.7.8:6379", "ADDRESS_PORT=tcp://10.96.7.9:80"}
	environ(t, links...)
	read, err := tenure.OptionsFromEnv("SHOP")
	require.NoError(t, err, "this process is meant to run alone")
	require.Nil(t, read.Redis)
	require.Empty(t, read.Options.Registry.Address)
	for _, at := range []string{"REDIS_HOST=shop-redis", "REDIS_URL=redis://shop-redis"} {
		environ(t, append(links, "NAMESPACE=shop", "REDIS_HOST=", at)...)
		read, err = tenure.OptionsFromEnv("SHOP")
		require.NoError(t, err, at)
		require.Equal(t, "shop-redis:6379", read.Redis.(*redis.Client).Options().Addr)
		require.NoError(t, read.Redis.Close())
	}
}

func TestClientFromEnv(t *testing.T) {
	for name, row := range map[string]struct {
		variables []string
		want      func(t *testing.T, rdb redis.UniversalClient)
	}{
		"host": {[]string{"REDIS_HOST=redis", "REDIS_TLS=true", "REDIS_USERNAME=a/b", "REDIS_PASSWORD=p@:/?#", "REDIS_DB=2"}, func(t *testing.T, rdb redis.UniversalClient) {
			o := rdb.(*redis.Client).Options()
			require.Equal(t, []any{"redis:6379", "a/b", "p@:/?#", 2, 3 * time.Second}, []any{o.Addr, o.Username, o.Password, o.DB, o.ReadTimeout})
			require.NotNil(t, o.TLSConfig)
		}},
		"IPv6 with a zone": {[]string{"REDIS_HOST=fe80::1%eth0"}, func(t *testing.T, rdb redis.UniversalClient) {
			require.Equal(t, "[fe80::1%eth0]:6379", rdb.(*redis.Client).Options().Addr)
		}},
		"IPv6": {[]string{"REDIS_HOST=::1", "REDIS_PORT=7000"}, func(t *testing.T, rdb redis.UniversalClient) {
			require.Equal(t, "[::1]:7000", rdb.(*redis.Client).Options().Addr)
		}},
		"its own time-out": {[]string{"REDIS_URL=redis://redis:6379?read_timeout=7s"}, func(t *testing.T, rdb redis.UniversalClient) {
			require.Equal(t, 7*time.Second, rdb.(*redis.Client).Options().ReadTimeout)
		}},
		"as it is in the URL": {[]string{"REDIS_URL=redis://a:p@redis:6379/1?pool_size=1000000&min_idle_conns=-1"}, func(t *testing.T, rdb redis.UniversalClient) {
			o := rdb.(*redis.Client).Options()
			require.Equal(t, []any{"a", "p", 1, 1_000_000, -1}, []any{o.Username, o.Password, o.DB, o.PoolSize, o.MinIdleConns})
		}},
		"a comma": {[]string{"REDIS_URL=redis://a:p,q@redis:6379/1?client_name=a,b"}, func(t *testing.T, rdb redis.UniversalClient) {
			require.Equal(t, "p,q", rdb.(*redis.Client).Options().Password)
		}},
		"the default pool": {[]string{"REDIS_URL=redis://redis:6379?pool_size=0"}, func(t *testing.T, rdb redis.UniversalClient) {
			require.Positive(t, rdb.(*redis.Client).Options().PoolSize)
		}},
		"the first of all": {[]string{"REDIS_HOST=redis", "REDIS_PORT=1", "REDIS_DB=1"}, func(t *testing.T, rdb redis.UniversalClient) {
			o := rdb.(*redis.Client).Options()
			require.Equal(t, []any{"redis:1", 1, ""}, []any{o.Addr, o.DB, o.Password})
			require.Nil(t, o.TLSConfig)
		}},
		"the last port": {[]string{"REDIS_HOST=redis", "REDIS_PORT=65535", "REDIS_DB=0"}, func(t *testing.T, rdb redis.UniversalClient) {
			o := rdb.(*redis.Client).Options()
			require.Equal(t, []any{"redis:65535", 0}, []any{o.Addr, o.DB})
		}},
		"Sentinel": {[]string{"REDIS_URL=redis://s1:26379?master_name=mymaster&addr=s2:26379", "REDIS_PASSWORD=p"}, func(t *testing.T, rdb redis.UniversalClient) {
			require.Equal(t, "FailoverClient", rdb.(*redis.Client).Options().Addr)
			require.Equal(t, "p", rdb.(*redis.Client).Options().Password)
			require.Equal(t, 1, dialerRetries(rdb.(*redis.Client).Options()))
		}},
		"a user behind Sentinel": {[]string{"REDIS_URL=redis://shop@s1:26379?master_name=mymaster", "REDIS_PASSWORD=p"}, func(t *testing.T, rdb redis.UniversalClient) {
			o := rdb.(*redis.Client).Options()
			require.Equal(t, []any{"shop", "p"}, []any{o.Username, o.Password})
		}},
		"one of Sentinel too": {[]string{"REDIS_URL=redis://s:sp@s1:26379?master_name=mymaster&username=shop", "REDIS_PASSWORD=p"}, func(t *testing.T, rdb redis.UniversalClient) {
			o := rdb.(*redis.Client).Options()
			require.Equal(t, []any{"shop", "p"}, []any{o.Username, o.Password})
		}},
		"only one of Sentinel": {[]string{"REDIS_URL=redis://s:sp@s1:26379?master_name=mymaster", "REDIS_PASSWORD=p"}, func(t *testing.T, rdb redis.UniversalClient) {
			o := rdb.(*redis.Client).Options()
			require.Equal(t, []any{"", "p"}, []any{o.Username, o.Password})
		}},
		"a cluster": {[]string{"REDIS_HOST=redis", "REDIS_CLUSTER=true", "REDIS_PASSWORD=p"}, func(t *testing.T, rdb redis.UniversalClient) {
			o := rdb.(*redis.ClusterClient).Options()
			require.Equal(t, []any{[]string{"redis:6379"}, "p", 3 * time.Second, time.Second}, []any{o.Addrs, o.Password, o.ReadTimeout, o.DialTimeout})
			require.Equal(t, 1, dialerRetries(o))
		}},
		"a cluster with its own time-out": {[]string{"REDIS_URL=redis://redis:6379?dial_timeout=4s", "REDIS_CLUSTER=true"}, func(t *testing.T, rdb redis.UniversalClient) {
			require.Equal(t, 4*time.Second, rdb.(*redis.ClusterClient).Options().DialTimeout)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			environ(t, append(row.variables, "NAMESPACE={shop}")...)
			read, err := tenure.OptionsFromEnv("SHOP")
			require.NoError(t, err)
			defer read.Redis.Close()
			row.want(t, read.Redis)
			c, err := read.New()
			require.NoError(t, err)
			require.Equal(t, 30*time.Second, c.Guarantees().LeaseTTL, "it does not lead alone")
		})
	}
}

// dialerRetries is the option of that name; 1 if this version of go-redis has none for such a
// client.
func dialerRetries(of any) int {
	field := reflect.ValueOf(of).Elem().FieldByName("DialerRetries")
	if _, has := reflect.TypeFor[redis.FailoverOptions]().FieldByName("DialerRetries"); !has || !field.IsValid() {
		return 1
	}
	return int(field.Int())
}

// TestPasswordFileOfEnv: a password is read from its file whenever a client logs in, so that it can
// be replaced.
func TestPasswordFileOfEnv(t *testing.T) {
	type logIn = func() (user, password string)
	for name, row := range map[string]struct {
		variables []string
		of        func(rdb redis.UniversalClient) logIn
	}{
		"one server": {[]string{"REDIS_HOST=redis", "REDIS_USERNAME=shop"}, func(rdb redis.UniversalClient) logIn {
			return rdb.(*redis.Client).Options().CredentialsProvider
		}},
		"instead of that in the URL": {[]string{"REDIS_URL=redis://shop:other@redis"}, func(rdb redis.UniversalClient) logIn {
			return rdb.(*redis.Client).Options().CredentialsProvider
		}},
		"Sentinel": {[]string{"REDIS_URL=redis://shop@s1:26379?master_name=mymaster"}, func(rdb redis.UniversalClient) logIn {
			return rdb.(*redis.Client).Options().CredentialsProvider
		}},
		"a cluster": {[]string{"REDIS_URL=redis://shop@redis", "REDIS_CLUSTER=true"}, func(rdb redis.UniversalClient) logIn {
			return rdb.(*redis.ClusterClient).Options().CredentialsProvider
		}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "password")
			write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
			write("first\n")
			environ(t, append(row.variables, "NAMESPACE={shop}", "REDIS_PASSWORD_FILE="+file)...)
			read, err := tenure.OptionsFromEnv("SHOP")
			require.NoError(t, err)
			defer read.Redis.Close()
			by := func(want string) {
				t.Helper()
				user, password := row.of(read.Redis)()
				require.Equal(t, []string{"shop", want}, []string{user, password})
			}
			by("first")
			write(" second \r\n")
			by(" second ")
			write("\n") // by who replaces it
			by(" second ")
			require.NoError(t, os.Remove(file))
			by(" second ")
			write("third")
			by("third")
		})
	}
}

// All that is wrong is said at once, by the names of the variables, and no error shows a secret.
func TestBadEnv(t *testing.T) {
	const secret = "hunter2"
	for name, row := range map[string]struct{ variables, fields []string }{
		"everything": {
			[]string{"ELECTION=maybe", "LEASE_TTL=30", "WORKER_COUNT=-1", "METADATA=zone", "FAIL_FAST=perhaps", "STATIC_LEADER=2", "ELIGIBLE=no?", "PRIORITY=high", "ROLES=a,,b"},
			[]string{"ELECTION", "LEASE_TTL", "WORKER_COUNT", "METADATA", "FAIL_FAST", "STATIC_LEADER", "ELIGIBLE", "PRIORITY", "ROLES"},
		},
		"twice":           {[]string{"METADATA=a=1,a=2"}, []string{"METADATA"}},
		"only its file":   {[]string{"REDIS_PASSWORD_FILE=/none"}, []string{"REDIS_PASSWORD_FILE"}},
		"other names":     {[]string{"REDIS_ADDR=redis:6379", "REDIS_ADDRESS=x", "REDIS_ADDRS=x", "REDIS_URI=x", "REDIS_DSN=x"}, []string{"REDIS_ADDR", "REDIS_ADDRESS", "REDIS_ADDRS", "REDIS_URI", "REDIS_DSN"}},
		"no such secret":  {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_PASSWORD_FILE=/no/such/file"}, []string{"REDIS_PASSWORD_FILE"}},
		"an empty file":   {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_PASSWORD_FILE=" + os.DevNull}, []string{"REDIS_PASSWORD_FILE"}},
		"two passwords":   {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_PASSWORD=" + secret, "REDIS_PASSWORD_FILE=/none"}, []string{"REDIS_PASSWORD_FILE"}},
		"no namespace":    {[]string{"REDIS_HOST=redis"}, []string{"NAMESPACE"}},
		"only a password": {[]string{"REDIS_PASSWORD=" + secret}, []string{"REDIS_PASSWORD"}},
		"both":            {[]string{"NAMESPACE=shop", "REDIS_URL=redis://:" + secret + "@redis", "REDIS_HOST=redis", "REDIS_DB=1"}, []string{"REDIS_HOST", "REDIS_DB"}},
		"a port":          {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_PORT=70000", "REDIS_PASSWORD=" + secret}, []string{"REDIS_PORT"}},
		"a higher port":   {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_PORT=65536"}, []string{"REDIS_PORT"}},
		"no port":         {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_PORT=0"}, []string{"REDIS_PORT"}},
		"a signed port":   {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_PORT=+80"}, []string{"REDIS_PORT"}},
		"a name as port":  {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_PORT=redis"}, []string{"REDIS_PORT"}},
		"host and port":   {[]string{"NAMESPACE=shop", "REDIS_HOST=redis:6380"}, []string{"REDIS_HOST"}},
		"a URL as host":   {[]string{"NAMESPACE=shop", "REDIS_HOST=redis://:" + secret + "@redis"}, []string{"REDIS_HOST"}},
		"a socket":        {[]string{"NAMESPACE=shop", "REDIS_HOST=/run/redis.sock"}, []string{"REDIS_HOST"}},
		"two hosts":       {[]string{"NAMESPACE=shop", "REDIS_URL=redis://:" + secret + "@r1:6379,r2:6379/0"}, []string{"REDIS_URL"}},
		"no ports":        {[]string{"NAMESPACE=shop", "REDIS_URL=redis://r1,r2?master_name=m"}, []string{"REDIS_URL"}},
		"no pool":         {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?pool_size=-1"}, []string{"REDIS_URL"}},
		"nor of a node":   {[]string{"NAMESPACE={shop}", "REDIS_URL=redis://redis?pool_size=-1", "REDIS_CLUSTER=true"}, []string{"REDIS_URL"}},
		"of two":          {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?pool_size=4&pool_size=-1"}, []string{"REDIS_URL"}},
		"a huge pool":     {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?pool_size=99999999999"}, []string{"REDIS_URL"}},
		"huge, of a node": {[]string{"NAMESPACE={shop}", "REDIS_URL=redis://redis?pool_size=99999999999", "REDIS_CLUSTER=true"}, []string{"REDIS_URL"}},
		"one too many":    {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?pool_size=1000001"}, []string{"REDIS_URL"}},
		"of a cluster":    {[]string{"NAMESPACE={shop}", "REDIS_URL=redis://redis?nonsense=1", "REDIS_CLUSTER=true"}, []string{"REDIS_URL"}},
		"of Sentinel":     {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?master_name=m&nonsense=1"}, []string{"REDIS_URL"}},
		"too many idle":   {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?min_idle_conns=99999999999"}, []string{"REDIS_URL"}},
		"too many active": {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?max_active_conns=99999999999"}, []string{"REDIS_URL"}},
		"a database":      {[]string{"NAMESPACE={shop}", "REDIS_HOST=redis", "REDIS_DB=3", "REDIS_CLUSTER=true"}, []string{"REDIS_DB"}},
		"one in the URL":  {[]string{"NAMESPACE={shop}", "REDIS_URL=redis://:" + secret + "@redis/3", "REDIS_CLUSTER=true"}, []string{"REDIS_URL"}},
		"no URL":          {[]string{"NAMESPACE=shop", "REDIS_URL=redis://:" + secret + "@red is:x"}, []string{"REDIS_URL"}},
		"another scheme":  {[]string{"NAMESPACE=shop", "REDIS_URL=http://:" + secret + "@redis"}, []string{"REDIS_URL"}},
		"not escaped":     {[]string{"NAMESPACE=shop", "REDIS_URL=redis://svc:/" + secret + "@redis/0"}, []string{"REDIS_URL"}},
		"nor here":        {[]string{"NAMESPACE=shop", "REDIS_URL=redis://svc:12/" + secret + "@redis"}, []string{"REDIS_URL"}},
		"nor there":       {[]string{"NAMESPACE=shop", "REDIS_URL=redis://svc:12?" + secret + "@redis"}, []string{"REDIS_URL"}},
		"nor before that": {[]string{"NAMESPACE=shop", "REDIS_URL=redis://:" + secret + "#" + secret + "@redis"}, []string{"REDIS_URL"}},
		"of a node":       {[]string{"NAMESPACE={shop}", "REDIS_URL=redis://svc:12#" + secret + "@redis", "REDIS_CLUSTER=true"}, []string{"REDIS_URL"}},
		"cut off":         {[]string{"NAMESPACE=shop", "REDIS_URL=redis://:p@" + secret + "#x@redis"}, []string{"REDIS_URL"}},
		"only a key":      {[]string{"NAMESPACE=shop", "REDIS_URL=rediss://redis", "REDIS_KEY_FILE=/key"}, []string{"REDIS_CERT_FILE"}},
		"no key":          {[]string{"NAMESPACE=shop", "REDIS_URL=rediss://redis", "REDIS_CERT_FILE=/cert"}, []string{"REDIS_KEY_FILE"}},
		"no such file":    {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_TLS=true", "REDIS_CERT_FILE=/cert/none", "REDIS_KEY_FILE=/key/none"}, []string{"REDIS_CERT_FILE"}},
		"no TLS":          {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_CERT_FILE=/cert", "REDIS_KEY_FILE=/key"}, []string{"REDIS_CERT_FILE"}},
		"an authority":    {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_CA_FILE=/ca"}, []string{"REDIS_CA_FILE"}},
		"none in it":      {[]string{"NAMESPACE=shop", "REDIS_URL=rediss://redis", "REDIS_CA_FILE=" + os.DevNull}, []string{"REDIS_CA_FILE"}},
		"no file of it":   {[]string{"NAMESPACE=shop", "REDIS_URL=rediss://redis", "REDIS_CA_FILE=/no/such/file"}, []string{"REDIS_CA_FILE"}},
		"only its name":   {[]string{"REDIS_CA_FILE=/ca"}, []string{"REDIS_CA_FILE"}},
		"no Sentinel":     {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_SENTINEL_PASSWORD=" + secret}, []string{"REDIS_SENTINEL_PASSWORD"}},
		"of it alone":     {[]string{"REDIS_SENTINEL_PASSWORD=" + secret}, []string{"REDIS_SENTINEL_PASSWORD"}},
		"two of Sentinel": {[]string{"NAMESPACE=shop", "REDIS_URL=redis://:" + secret + "@redis?master_name=m", "REDIS_SENTINEL_PASSWORD=" + secret}, []string{"REDIS_SENTINEL_PASSWORD"}},
		"and a file":      {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?master_name=m", "REDIS_SENTINEL_PASSWORD=" + secret, "REDIS_SENTINEL_PASSWORD_FILE=/f"}, []string{"REDIS_SENTINEL_PASSWORD_FILE"}},
		"no file there":   {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?master_name=m", "REDIS_SENTINEL_PASSWORD_FILE=/no/such/file"}, []string{"REDIS_SENTINEL_PASSWORD_FILE"}},
		"only its user":   {[]string{"NAMESPACE=shop", "REDIS_URL=redis://redis?master_name=m", "REDIS_SENTINEL_USERNAME=s"}, []string{"REDIS_SENTINEL_USERNAME"}},
		"many servers":    {[]string{"NAMESPACE=shop", "REDIS_URL=redis://:" + secret + "@redis?addr=other:6379"}, []string{"REDIS_URL", "REDIS_CLUSTER"}},
		"a parameter":     {[]string{"NAMESPACE=shop", "REDIS_URL=redis://:" + secret + "@redis?nonsense=1"}, []string{"REDIS_URL"}},
		"URL of a file":   {[]string{"NAMESPACE=shop", "REDIS_URL=redis://:" + secret + "@redis\n"}, []string{"REDIS_URL", "REDIS_URL = \"…\": must not end with the end of a line"}},
		"password of one": {[]string{"NAMESPACE=shop", "REDIS_HOST=redis", "REDIS_PASSWORD=" + secret + "\r\n"}, []string{"REDIS_PASSWORD", "REDIS_PASSWORD = \"…\": must not end with the end of a line"}},
	} {
		t.Run(name, func(t *testing.T) {
			environ(t, row.variables...)
			read, err := tenure.OptionsFromEnv("SHOP")
			require.ErrorIs(t, err, tenure.ErrMisconfigured)
			require.Nil(t, read.Redis)
			require.NotContains(t, err.Error(), secret)
			for _, field := range row.fields {
				require.Contains(t, err.Error(), "SHOP_"+field)
			}
			require.Equal(t, slices.Contains(row.fields, "REDIS_URL"), strings.Contains(err.Error(), "SHOP_REDIS_URL = "), "only what is wrong is named: %v", err)
			var refused *tenure.OptionError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, 1, strings.Count(err.Error(), "SHOP_"+row.fields[0]+" "), "%v", err)
		})
	}
	// With "SHOP_" as the prefix SHOP__REDIS_URL would be asked for, none found, and every
	// instance lead.
	for _, prefix := range []string{"", "shop", "1SHOP", "SHOP-", "SHOP_", "SHOP__"} {
		_, err := tenure.OptionsFromEnv(prefix)
		require.ErrorIs(t, err, tenure.ErrMisconfigured, prefix)
	}
}

// The modes are the steps from a static flag to an election.
func TestModesOfEnv(t *testing.T) {
	leads := func(t *testing.T, variables ...string) (leads bool) {
		environ(t, variables...)
		read, err := tenure.OptionsFromEnv("SHOP")
		require.NoError(t, err)
		require.Nil(t, read.Redis)
		synctest.Test(t, func(t *testing.T) {
			c, err := read.New()
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			end := make(chan error)
			go func() { end <- c.Run(ctx) }()
			time.Sleep(time.Minute)
			leads = c.IsLeader()
			status := c.Elector().Status()
			stop()
			require.NoError(t, <-end)
			if !leads { // there is no Redis that could have lost anything
				require.Equal(t, tenure.WaitIneligible, status.Waiting)
				require.Zero(t, status.WaitingUntil)
			}
		})
		return leads
	}
	require.True(t, leads(t))
	require.True(t, leads(t, "ELECTION=static", "STATIC_LEADER=true", "REDIS_URL=redis://not.used"))
	require.False(t, leads(t, "STATIC_LEADER=false"))
	require.False(t, leads(t, "ELECTION=off", "STATIC_LEADER=true"))
}

// TestModeThatIsNone: a Mode that a program has mistyped is no election, in which it would lead
// alone.
func TestModeThatIsNone(t *testing.T) {
	for mode, good := range map[tenure.EnvMode]bool{"": true, tenure.EnvElect: true, tenure.EnvStatic: true, tenure.EnvOff: true, "OFF": false, "none": false} {
		c, err := tenure.EnvOptions{Mode: mode}.New()
		require.Equal(t, good, err == nil, mode)
		require.Equal(t, good, c != nil, mode)
		var problem *tenure.OptionError
		require.Equal(t, !good, errors.As(err, &problem) && problem.Field == "Mode", mode)
	}
}

// TestStaticBesideARedis: the flag counts, though a program has a client already.
func TestStaticBesideARedis(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	defer rdb.Close()
	for mode, elects := range map[tenure.EnvMode]bool{"": true, tenure.EnvElect: true, tenure.EnvStatic: false, tenure.EnvOff: false} {
		c, err := tenure.EnvOptions{Options: tenure.Options{Namespace: "shop"}, Mode: mode, StaticLeader: true, Redis: rdb}.New()
		require.NoError(t, err)
		require.Equal(t, elects, c.Guarantees().LeaseTTL > 0, mode)
	}
}

// TestEligibleByDefault: an empty environment makes a candidate that may lead.
func TestEligibleByDefault(t *testing.T) {
	for text, ineligible := range map[string]bool{"": false, "true": false, "false": true} {
		environ(t, "ELIGIBLE="+text, "DEFAULT_ROLE="+text)
		read, err := tenure.OptionsFromEnv("SHOP")
		require.NoError(t, err)
		require.Equal(t, ineligible, read.Options.Election.Ineligible, text)
		require.Equal(t, ineligible, read.Options.NoDefaultRole, text)
		require.Zero(t, read.Options.Election.Priority)
	}
}

func TestGuarantees(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	defer rdb.Close()
	c, err := tenure.New(rdb, tenure.Options{Namespace: "shop"})
	require.NoError(t, err)
	inSeconds := func(d time.Duration) float64 { return d.Seconds() }

	g := c.Guarantees()
	require.Equal(t, c.Elector().Guarantees(), g)
	require.InDelta(t, 0.1+1/7.5+1/120.0+1.0/15+0.1, g.Leading, 1e-9, "a renewal every 10 s, a check every 7.5, a count every 120, a heartbeat every 15, a sweep every 10")
	require.InDelta(t, 1.0/15+1/7.5+1/120.0+1.0/15, g.Following, 1e-9, "an acquire every 15 s, a check, a count with one in 16, a heartbeat")
	require.InDelta(t, 0.01, g.ClockRate, 1e-12)
	g.Leading, g.Following, g.ClockRate = 0, 0, 0
	require.Equal(t, tenure.Guarantees{
		LeaseTTL: 30 * time.Second, Belief: 29698 * time.Millisecond, Cancel: 29098 * time.Millisecond,
		OutageTolerance: 10875 * time.Millisecond, CrashFailover: 30050 * time.Millisecond,
		HandOver: 20 * time.Millisecond, HandOverUnheard: 16500 * time.Millisecond, Yield: time.Second, TransferWait: 35 * time.Second,
		LossFailover: 48500 * time.Millisecond, FirstElection: 32 * time.Second,
	}, g)

	of := func(o tenure.Options) float64 {
		o.Namespace = "shop"
		c, err := tenure.New(rdb, o)
		require.NoError(t, err)
		return c.Guarantees().Leading
	}
	leading := of(tenure.Options{})
	require.InDelta(t, leading, of(tenure.Options{Tasks: tenure.TaskOptions{MinInstances: 1}}), 1e-9, "nobody counts to one")
	require.InDelta(t, leading+1.0/15, of(tenure.Options{Tasks: tenure.TaskOptions{MinInstances: 2}}), 1e-9, "a count with each heartbeat")
	require.InDelta(t, leading-0.1, of(tenure.Options{Registry: tenure.RegistryOptions{SweepInterval: -1}}), 1e-9, "no sweep")

	mailer, err := c.AddRole("mailer", tenure.ElectionOptions{LeaseTTL: 3 * time.Second, Safety: tenure.SafetyOptions{
		HoldOff: 5 * time.Second, FailoverMargin: time.Second / 2, RestartGuard: -1,
	}})
	require.NoError(t, err)
	g = mailer.Guarantees()
	require.Equal(t, "mailer", g.Role)
	require.InDelta(t, 1, g.Leading, 1e-9, "the process is counted with the default role")
	require.Equal(t, 1650*time.Millisecond+5*time.Second+time.Second/2+2*time.Second, g.LossFailover)
	require.Equal(t, 250*time.Millisecond, g.FirstElection, "no guard: the roll-call alone")

	text, err := json.Marshal(g)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	require.InDelta(t, inSeconds(g.OutageTolerance), fields["outage_tolerance_seconds"], 1e-9)
	require.InDelta(t, 3.5, fields["transfer_wait_seconds"], 1e-9)
	require.Len(t, fields, 15, "%s", text)

	alone, err := tenure.NewElector(rdb, tenure.ElectorOptions{Namespace: "shop", Election: tenure.ElectionOptions{LeaseTTL: 4 * time.Second}})
	require.NoError(t, err)
	require.InDelta(t, 1/2.0+1/2.5+1/40.0, alone.Guarantees().Following, 1e-9, "an acquire every 2 s, a check every 2.5, a count every 40")

	local, err := tenure.NewStandalone(tenure.Options{})
	require.NoError(t, err)
	require.Zero(t, local.Guarantees(), "there is no lease that could end")
}

// TestAloneByMistake: a process for which nobody has named a Redis leads beside all others that
// have the same fault. Its log says so, unless it is meant to.
func TestAloneByMistake(t *testing.T) {
	for mode, want := range map[string]string{
		"":   `level=WARN msg="no redis is named, this process leads alone" instance=a` + "\n",
		"on": `level=WARN msg="no redis is named, this process leads alone" instance=a` + "\n", "static": "", "off": "",
	} {
		t.Run(mode, func(t *testing.T) {
			environ(t, "NAMESPACE=shop", "INSTANCE_ID=a", "REDIS_ULR=redis://redis", "ELECTION="+mode, "STATIC_LEADER=true")
			read, err := tenure.OptionsFromEnv("SHOP")
			require.NoError(t, err)
			var log strings.Builder
			read.Options.Logger = slog.New(slog.NewTextHandler(&log, nil))
			_, err = read.New()
			require.NoError(t, err)
			_, got, _ := strings.Cut(log.String(), " ") // behind the time
			require.Equal(t, want, got)
		})
	}
}

// The bounds are in the log from the start.
func TestGuaranteesAreLogged(t *testing.T) {
	var log strings.Builder
	c, err := tenure.New(redis.NewClient(&redis.Options{Addr: "localhost:1"}), tenure.Options{
		Namespace: "shop", FailFast: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	require.Error(t, c.Run(t.Context()))
	require.Regexp(t, `level=INFO msg="takes part in the election" instance=\S+ lease_ttl=30s outage_tolerance=10.875s crash_failover=30.05s hand_over=20ms `+
		`loss_failover=48.5s clock_rate=0.01\n`, log.String())
}
