package tenure

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// chatty are options of a registry that say everything there is to say.
func chatty(o *Options) {
	r := &o.Registry
	r.WorkerCount, r.WorkerID, r.Address, r.Host, r.Version = 4, 7, "https://10.0.0.7:8443/api", "node-1", "v1.2.3+build.7"
	r.Ports, r.Roles, r.Capabilities = map[string]int{"http": 8080, "grpc": 9090}, []string{"gateway", "worker"}, []string{"gpu"}
	r.Load, r.LoadLimit = Load{Connections: 12, Jobs: 3, CPU: 0.25, Memory: 0.5}, Load{Jobs: 8, CPU: 0.75}
	r.Metadata = map[string]string{"zone": "a"}
}

// TestWhatAnInstanceSays: the record holds it under names that are a contract, and it reads back as
// it was said.
func TestWhatAnInstanceSays(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m := w.member("pod-0", chatty)
		m.setStatus(InstanceActive)
		m.beats()
		var record map[string]json.RawMessage
		text := w.record("pod-0")
		require.NoError(w, json.Unmarshal([]byte(text), &record))
		for field, want := range map[string]string{
			"worker_count": "4", "worker_id": "7", "address": `"https://10.0.0.7:8443/api"`, "host": `"node-1"`, "version": `"v1.2.3+build.7"`,
			"ports": `{"grpc":9090,"http":8080}`, "roles": `["gateway","worker"]`, "capabilities": `["gpu"]`,
			"load": `{"connections":12,"jobs":3,"cpu":0.25,"memory":0.5}`, "load_limit": `{"jobs":8,"cpu":0.75}`, "metadata": `{"zone":"a"}`,
		} {
			require.Equal(w, want, string(record[field]), "%s of %s", field, text)
		}
		require.NotContains(w, record, "leading", "what is not said is left out")

		i, err := m.Instance(w.Context(), "pod-0")
		require.NoError(w, err)
		require.Equal(w, m.opts.profile(), profileOf(i))
		require.Equal(w, "pod-0-1", i.Incarnation, "it is tenure's record")
		require.True(w, i.HasRole("worker") && i.HasCapability("gpu") && i.CanAcceptWork())
		require.False(w, i.HasRole("gpu") || i.HasRole("") || i.HasCapability("worker"))
		require.InDelta(w, 0.375, i.Load.Mean(), 1e-9)

		// Marked by a sweep it keeps all of it.
		w.silence(70*time.Second, "pod-0")
		leader := w.member("leader")
		leader.pass(leader.watched())
		require.Equal(w, strings.Replace(text, `"status":"active"`, `"status":"drifted"`, 1), w.record("pod-0"))
		i, err = leader.Instance(w.Context(), "pod-0")
		require.NoError(w, err)
		require.Equal(w, m.opts.profile(), profileOf(i))
		require.False(w, i.CanAcceptWork(), "it has drifted")
	})
}

func profileOf(i Instance) store.Profile {
	return store.Profile{
		WorkerCount: i.WorkerCount, WorkerID: i.WorkerID, Address: i.Address, Host: i.Host, Version: i.Version, Ports: i.Ports, Roles: i.Roles,
		Capabilities: i.Capabilities, Load: store.Load(i.Load), LoadLimit: store.Load(i.LoadLimit), Metadata: i.Metadata,
	}
}

func TestCanAcceptWork(t *testing.T) {
	at := func(state InstanceState, load, limit Load) bool {
		return Instance{State: state, Load: load, LoadLimit: limit}.CanAcceptWork()
	}
	full := Load{Connections: math.MaxInt32, Jobs: math.MaxInt32, CPU: 1, Memory: 1}
	require.True(t, at(InstanceActive, full, Load{}), "without limits it takes everything")
	for _, state := range []InstanceState{InstanceJoining, InstanceDraining, InstanceDrifted, InstanceDown, InstanceUnknown, "dead", ""} {
		require.False(t, at(state, Load{}, Load{}), "%s", state)
	}
	for _, limit := range []Load{{Connections: 10}, {Jobs: 10}, {CPU: 0.5}, {Memory: 0.5}} {
		require.True(t, at(InstanceActive, Load{Connections: 9, Jobs: 9, CPU: 0.4, Memory: 0.4}, limit))
		require.False(t, at(InstanceActive, Load{Connections: 10, Jobs: 10, CPU: 0.5, Memory: 0.5}, limit), "%+v", limit)
	}
}

// TestLimitsOfWhatIsSaid: each problem names field and value, and nothing of it reaches Redis.
func TestLimitsOfWhatIsSaid(t *testing.T) {
	many := func(n, length int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("%0*d", length, i))
		}
		return names
	}
	crowd := make(map[string]int)
	for _, name := range many(17, 4) {
		crowd[name] = 1
	}
	for name, c := range map[string]struct {
		set  func(*RegistryOptions)
		says string // "": nothing is wrong
	}{
		"all":               {func(r *RegistryOptions) { *r = fullest() }, ""},
		"worker ID":         {func(r *RegistryOptions) { r.WorkerID = -1 }, "Registry.WorkerID = -1: must be between 0 and 1048576"},
		"newline":           {func(r *RegistryOptions) { r.Address = "a\r\nSet-Cookie: x" }, `Registry.Address = "a\r\nSet-Cookie: x": must match`},
		"escape":            {func(r *RegistryOptions) { r.Host = "\x1b[2J" }, `Registry.Host = "\x1b[2J": must match`},
		"long address":      {func(r *RegistryOptions) { r.Address = strings.Repeat("x", 257) }, "Registry.Address = "},
		"quote":             {func(r *RegistryOptions) { r.Version = `1"` }, `Registry.Version = "1\"": must match`},
		"port 0":            {func(r *RegistryOptions) { r.Ports = map[string]int{"http": 0} }, `Registry.Ports["http"] = 0: must be between 1 and 65535`},
		"port 65536":        {func(r *RegistryOptions) { r.Ports = map[string]int{"http": 65536} }, `Registry.Ports["http"] = 65536`},
		"port without name": {func(r *RegistryOptions) { r.Ports = map[string]int{"": 1} }, `Registry.Ports = "": must have names`},
		"17 ports":          {func(r *RegistryOptions) { r.Ports = crowd }, "Registry.Ports = 17 ports: must have at most 16"},
		"blank":             {func(r *RegistryOptions) { r.Roles = []string{"a", "b c"} }, `Registry.Roles[1] = "b c": must match`},
		"twice":             {func(r *RegistryOptions) { r.Roles = []string{"a", "a"} }, `Registry.Roles[1] = "a": is there twice`},
		"65 roles":          {func(r *RegistryOptions) { r.Roles = many(65, 4) }, "Registry.Roles = 65 names, 260 bytes: must have at most 64 names and 4096 bytes"},
		"too many bytes":    {func(r *RegistryOptions) { r.Capabilities = many(33, 128) }, "Registry.Capabilities = 33 names, 4224 bytes"},
		"CPU in percent":    {func(r *RegistryOptions) { r.Load.CPU = 50 }, "Registry.Load.CPU = 50: must be between 0 and 1"},
		"no number":         {func(r *RegistryOptions) { r.Load.Memory = math.NaN() }, "Registry.Load.Memory = NaN: must be between 0 and 1"},
		"endless":           {func(r *RegistryOptions) { r.LoadLimit.CPU = math.Inf(1) }, "Registry.LoadLimit.CPU = +Inf"},
		"negative jobs":     {func(r *RegistryOptions) { r.LoadLimit.Jobs = -1 }, "Registry.LoadLimit.Jobs = -1: must be between 0 and 2147483647"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := completed(func(o *Options) { c.set(&o.Registry) })
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrMisconfigured)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\x1b")
			require.Less(t, len(err.Error()), 1000)
		})
	}
	require.Empty(t, defaultHost(func() (string, error) { return "a host", nil }), "a name that cannot be published")
}

// fullest says as much as may be said.
func fullest() RegistryOptions {
	r := RegistryOptions{
		WorkerCount: store.MaxWorkers, WorkerID: store.MaxWorkers, Address: strings.Repeat("&", 256), Host: strings.Repeat("h", 253),
		Version: strings.Repeat("v", 128), Ports: make(map[string]int), Metadata: make(map[string]string),
		Load:      Load{Connections: math.MaxInt32, Jobs: math.MaxInt32, CPU: 1 / 3.0, Memory: 1 / 3.0},
		LoadLimit: Load{Connections: math.MaxInt32, Jobs: math.MaxInt32, CPU: 1 / 3.0, Memory: 1 / 3.0},
	}
	for i := range store.MaxPorts {
		r.Ports[fmt.Sprintf("%064d", i)] = 65535
	}
	for i := range store.MaxNames {
		r.Roles = append(r.Roles, fmt.Sprintf("%064d", i))
		r.Capabilities = append(r.Capabilities, fmt.Sprintf("%064d", i))
	}
	for i := range store.MaxMetadataPairs {
		r.Metadata[fmt.Sprintf("%02d", i)] = strings.Repeat("\x01", 126)
	}
	return r
}

// TestFullestRecordIsRead: a record that says as much as may be said is read by everybody.
func TestFullestRecordIsRead(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m := w.member("a", func(o *Options) { o.Registry = fullest() })
		var led []string
		for i := range 100 {
			led = append(led, fmt.Sprintf("%0100d", i))
		}
		m.elections.leading = func(roles []string) []string { return append(roles, led...) }
		m.beats()
		require.Less(w, len(w.record("a")), 60_000)
		i, err := m.Instance(w.Context(), "a")
		require.NoError(w, err)
		require.Equal(w, m.opts.profile(), profileOf(i))
		require.Equal(w, led[:40], i.Leading, "the first 4 KiB of names")
		require.Less(w, i.size(), 32<<10)
	})
}

// TestHostileProfiles: of what another program wrote only that is believed which an instance of
// tenure may say. The rest of the record stays as it is.
func TestHostileProfiles(t *testing.T) {
	names := func(n, length int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"%0*d"`, length, i)
		}
		return strings.Join(all, ",")
	}
	for record, want := range map[string]store.Profile{
		`{"address":"a\nb","host":"a b","version":"\u001b[2J","worker_id":-1}`:          {},
		`{"address":7,"host":[],"version":{},"worker_id":"x","ports":[],"roles":{}}`:    {},
		`{"address":"x:1","host":"h","version":"1","worker_id":1e300,"load":{"cpu":9}}`: {Address: "x:1", Host: "h", Version: "1", WorkerID: 1 << 20, Load: store.Load{CPU: 1}},
		`{"roles":["a",7,null,"","b c","d"],"capabilities":"gpu","load":[1]}`:           {Roles: []string{"a", "d"}},
		`{"roles":[` + names(65, 2) + `],"capabilities":[` + names(40, 128) + `]}`:      {},
		`{"ports":{"http":80,"x":0,"y":65536,"z":1.5,"a b":9,"w":"80"}}`:                {Ports: map[string]int{"http": 80}},
		`{"load":{"connections":-1,"jobs":1e300,"cpu":-1,"memory":"x"}}`:                {Load: store.Load{Jobs: math.MaxInt32}},
		`{"load":{"cpu":0.5},"load_limit":{"cpu":0.5},"labels":{"zone":"a"},"more":1}`:  {Load: store.Load{CPU: 0.5}, LoadLimit: store.Load{CPU: 0.5}},
	} {
		i, ok := store.ParseInstance(record)
		require.True(t, ok)
		require.Equal(t, want, i.Profile, record)
		require.Empty(t, i.Incarnation)
	}
	i, ok := store.ParseInstance(`{"leading":["","a","b c",null,7]}`)
	require.True(t, ok)
	require.Equal(t, []string{"", "a"}, i.Leading)

	w := miniRegistry(t)
	const theirs = `{"status":"degraded","address":"10.0.0.1:80","zone":{"rack":7},"more":[1,2]}`
	w.foreign("x", theirs)
	m := w.member("reader")
	m.pass(m.watched())
	require.JSONEq(t, theirs, w.record("x"), "what tenure does not know stays")
	x, err := m.Instance(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, InstanceState("degraded"), x.State)
	require.Equal(t, "10.0.0.1:80", x.Address)
	require.False(t, x.CanAcceptWork())
}

// TestRecordOfTheLeader: the record says what the instance leads, from the heartbeat after it on.
func TestRecordOfTheLeader(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", chatty)
		_, err := a.AddRole("cleanup", ElectionOptions{})
		require.NoError(c, err)
		a.start()
		c.pass(time.Minute)
		read := func() Instance {
			i, err := a.Registry().Instance(context.Background(), "a")
			require.NoError(c, err)
			return i
		}
		require.Equal(c, []string{"", "cleanup"}, read().Leading)
		require.True(c, read().HasRole("cleanup") && read().HasRole("") && read().HasRole("gateway"))
		b := c.member("b")
		_, err = b.AddRole("cleanup", ElectionOptions{})
		require.NoError(c, err)
		b.start()
		c.pass(time.Minute)
		cleanup, _ := a.Role("cleanup")
		require.NoError(c, cleanup.Resign(context.Background()))
		c.pass(20 * time.Second)
		require.Equal(c, []string{""}, read().Leading)
		i, err := a.Registry().Instance(context.Background(), "b")
		require.NoError(c, err)
		require.Equal(c, []string{"cleanup"}, i.Leading)
		for _, m := range []*instance{a, b} {
			_, err = m.stop()
			require.NoError(c, err)
		}
	})
}

// TestLoadWaitsForTheHeartbeat: however often the load is said, it costs no heartbeat.
func TestLoadWaitsForTheHeartbeat(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", chatty).start()
		c.pass(20 * time.Second)
		var calls atomic.Int32
		c.redis.Watch(func(_ time.Time, _, cmd string, args []string) {
			if strings.HasPrefix(strings.ToLower(cmd), "evalsha") && slices.Contains(args, "tenure:instance:a:heartbeat") {
				calls.Add(1)
			}
		})
		for n := range 140 { // 14 s, which have at most one heartbeat
			require.NoError(c, a.Registry().Update(InstanceUpdate{Load: &Load{Jobs: n, CPU: 0.5}}))
			require.Equal(c, Load{Jobs: n, CPU: 0.5}, a.Options().Registry.Load)
			c.pass(100 * time.Millisecond)
		}
		require.LessOrEqual(c, calls.Load(), int32(1))
		c.pass(20 * time.Second)
		i, err := a.Registry().Instance(context.Background(), "a")
		require.NoError(c, err)
		require.Equal(c, Load{Jobs: 139, CPU: 0.5}, i.Load)
		require.False(c, i.CanAcceptWork(), "8 jobs are its limit")

		address := "10.0.0.8:80"
		require.NoError(c, a.Registry().Update(InstanceUpdate{
			Address: &address, Ports: map[string]int{}, Roles: []string{"worker"}, Capabilities: []string{}, LoadLimit: &Load{},
		}))
		c.pass(20 * time.Millisecond)
		i, err = a.Registry().Instance(context.Background(), "a")
		require.NoError(c, err)
		require.Equal(c, address, i.Address, "all else is said at once")
		require.Empty(c, i.Ports)
		require.Equal(c, []string{"worker"}, i.Roles)
		require.Empty(c, i.Capabilities)
		require.Equal(c, "node-1", i.Host, "what an update does not name stays")
		require.True(c, i.CanAcceptWork(), "it has no limits any more")
		for field, wrong := range map[string]InstanceUpdate{
			"InstanceUpdate.Load.CPU":      {Load: &Load{CPU: 2}},
			"InstanceUpdate.Roles[0]":      {Roles: []string{"a b"}},
			`InstanceUpdate.Ports["http"]`: {Ports: map[string]int{"http": -1}},
		} {
			require.ErrorContains(c, a.Registry().Update(wrong), field)
		}
		require.Equal(c, []string{"worker"}, a.Options().Registry.Roles, "what is refused changes nothing")
		_, err = a.stop()
		require.NoError(c, err)
	})
}
