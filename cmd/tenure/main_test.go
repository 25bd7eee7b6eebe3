//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/cli"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

func TestMain(m *testing.M) {
	testing.Init()
	if err := flag.Set("test.parallel", "16"); err != nil { // scripts wait for leases, and need no processor meanwhile
		panic(err)
	}
	testscript.Main(m, map[string]func(){
		"tenure":  func() { os.Exit(cli.Main(os.Args[1:])) },
		"service": service,
		"redis":   redisCommand,
		"until":   until,
		"code":    code,
		"lapse":   lapse,
	})
}

// patience is far longer than anything in a script takes on a starved machine.
const patience = "60s"

// Scripts that need servers of their own are run by TestScriptsOfServers.
var ofServers = map[string]bool{"tls": true, "sentinel": true, "cluster": true, "three": true}

// overAPI are those that are run over the HTTP API too: their output is the same.
var overAPI = map[string]bool{"docs": true, "heir": true, "hostile": true, "status": true, "steer": true, "tasks": true, "unread": true, "usage": true}

// TestScripts runs testdata/script on a real redis-server, each script in a namespace of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs redis-server")
	}
	server := redistest.Start(t)
	runScripts(t, "redis", func(name string) bool { return !ofServers[name] }, func(e *testscript.Env, name string) error {
		e.Setenv("TENURE_REDIS_URL", "redis://"+server.Addr())
		e.Setenv("REDIS_ADDR", server.Addr())
		return nil
	}, nil)
}

// TestScriptsOverAPI runs those scripts again that make sense over the HTTP API: tenure asks a
// dashboard, which knows who asks by a token.
func TestScriptsOverAPI(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs redis-server")
	}
	server := redistest.Start(t)
	runScripts(t, "api", func(name string) bool { return overAPI[name] }, func(e *testscript.Env, name string) error {
		e.Setenv("TENURE_REDIS_URL", "redis://"+server.Addr())
		e.Setenv("REDIS_ADDR", server.Addr())
		return serveDashboard(e, server.Client(t), name)
	}, nil)
}

// serveDashboard serves the HTTP API of a namespace while a script runs, for TENURE_API.
func serveDashboard(e *testscript.Env, client redis.UniversalClient, namespace string) error {
	control, err := tenure.NewControl(client, tenure.ControlOptions{Namespace: namespace})
	if err != nil {
		return err
	}
	handler, err := tenurehttp.NewDashboard(control, tenurehttp.Options{
		Authorize: tenurehttp.BearerToken(map[string]string{"ops@desk": "token-of-ops"}), GuardReads: true,
	})
	if err != nil {
		return err
	}
	web := httptest.NewServer(http.StripPrefix("/tenure", handler))
	e.Defer(func() {
		handler.Close()
		web.CloseClientConnections()
		web.Close()
	})
	e.Setenv("TENURE_API", web.URL+"/tenure/")
	e.Setenv("TENURE_API_TOKEN", "token-of-ops")
	return nil
}

// TestScriptsOfServers runs those that need a server with TLS, Sentinels, a Cluster, or one that
// stops and starts again.
func TestScriptsOfServers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs redis-server")
	}
	authority := redistest.NewAuthority(t)
	certificate := filepath.Join(t.TempDir(), "authority.pem")
	require.NoError(t, os.WriteFile(certificate, authority.PEM(t), 0o600))
	const password = "secret-of-redis"
	secured := redistest.Start(t, redistest.Secured(authority), redistest.Args("--requirepass", password), redistest.Login("default", password))
	only := func(one string) func(string) bool { return func(name string) bool { return name == one } }
	runScripts(t, "redis", only("tls"), func(e *testscript.Env, _ string) error {
		e.Setenv("REDISS_URL", "rediss://"+secured.Addr())
		e.Setenv("CERTIFICATE", certificate)
		return os.WriteFile(filepath.Join(e.WorkDir, "password"), []byte(password+"\n"), 0o600)
	}, nil)

	sentinel := redistest.StartSentinel(t)
	runScripts(t, "redis", only("sentinel"), func(e *testscript.Env, _ string) error {
		hosts := make([]string, len(sentinel.Watchers))
		for i, w := range sentinel.Watchers {
			hosts[i] = w.Addr()
		}
		e.Setenv("TENURE_REDIS_URL", "redis://"+hosts[0]+"?master_name="+sentinel.Options().MasterName+"&addr="+strings.Join(hosts[1:], "&addr="))
		return nil
	}, map[string]func(*testscript.TestScript, bool, []string){
		"failover": func(*testscript.TestScript, bool, []string) { sentinel.Failover(t) },
	})

	cluster := redistest.StartCluster(t)
	runScripts(t, "redis", only("cluster"), func(e *testscript.Env, _ string) error {
		e.Setenv("TENURE_REDIS_URL", "redis://"+cluster.Nodes[0].Addr())
		e.Setenv("TENURE_REDIS_CLUSTER", "true")
		e.Setenv("TENURE_NAMESPACE", "{cluster}") // so that its keys share a slot
		return nil
	}, nil)
}

// TestThreeInstances drives three instances through an election, a crash, a drain, transfers, and
// Redis that goes down and comes back: over Redis, and over the HTTP API.
func TestThreeInstances(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs redis-server")
	}
	for _, over := range []string{"redis", "api"} {
		server := redistest.Start(t, redistest.Persist())
		runScripts(t, over, func(name string) bool { return name == "three" }, func(e *testscript.Env, name string) error {
			e.Setenv("TENURE_REDIS_URL", "redis://"+server.Addr())
			if over == "redis" {
				return nil
			}
			return serveDashboard(e, server.Client(t), name)
		}, map[string]func(*testscript.TestScript, bool, []string){
			"redis-stops":  func(*testscript.TestScript, bool, []string) { server.Stop(t) },
			"redis-starts": func(*testscript.TestScript, bool, []string) { server.Start(t) },
		})
	}
}

// runScripts runs the scripts that are chosen, with the condition over.
func runScripts(t *testing.T, over string, chosen func(name string) bool, setup func(e *testscript.Env, name string) error,
	commands map[string]func(*testscript.TestScript, bool, []string)) {
	t.Helper()
	all, err := filepath.Glob("testdata/script/*.txtar")
	require.NoError(t, err)
	all = slices.DeleteFunc(all, func(path string) bool { return !chosen(strings.TrimSuffix(filepath.Base(path), ".txtar")) })
	require.NotEmpty(t, all)
	if signal.Ignored(syscall.SIGHUP) { // under nohup, which scripts would inherit
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	examples, err := filepath.Abs("../../examples/sidecar")
	require.NoError(t, err)
	python := "" // the folder of the interpreter itself: what stands for it may want the home of the user
	if path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output(); err == nil {
		python = filepath.Dir(strings.TrimSpace(string(path)))
	}
	if commands == nil {
		commands = make(map[string]func(*testscript.TestScript, bool, []string))
	}
	commands["read-env"] = readEnv
	testscript.Run(t, testscript.Params{
		Files:     all,
		Condition: func(condition string) (bool, error) { return condition == over, nil },
		Cmds:      commands,
		Setup: func(e *testscript.Env) error {
			name := strings.TrimSuffix(filepath.Base(e.WorkDir), ".txtar")
			name = strings.TrimPrefix(name, "script-")
			e.Setenv("TENURE_NAMESPACE", name)
			e.Setenv("TENURE_RESTART_GUARD", "-1s") // this redis was just started, and nothing was lost
			e.Setenv("TENURE_LEASE_TTL", "60s")     // a starved process keeps it; scripts that await the end of a lease name another
			e.Setenv("TENURE_RETRY_INTERVAL", "5s")
			e.Setenv("TENURE_HEARTBEAT_INTERVAL", "1s")
			e.Setenv("TENURE_HEARTBEAT_TTL", "60s")
			e.Setenv("TENURE_TIMEOUT", patience)
			e.Setenv("TENURE_BY", "ops@desk")
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("HOSTNAME", "desk")
			e.Setenv("EXAMPLES", examples)
			e.Setenv("PATH", python+string(os.PathListSeparator)+e.Getenv("PATH"))
			return setup(e, name)
		},
	})
}

// readEnv waits for a file, and sets a variable to its text: read-env NAME FILE.
func readEnv(ts *testscript.TestScript, _ bool, args []string) {
	bound, err := time.ParseDuration(patience)
	ts.Check(err)
	for end := time.Now().Add(bound); time.Now().Before(end); {
		if text, err := os.ReadFile(ts.MkAbs(args[1])); err == nil {
			ts.Setenv(args[0], strings.TrimSpace(string(text)))
			return
		}
		<-time.After(20 * time.Millisecond) // a bounded poll
	}
	ts.Fatalf("there is no %s", args[1])
}

// TestDocs: every command that docs/cli.md shows is run by the script of that name.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	script, err := os.ReadFile("testdata/script/docs.txtar")
	require.NoError(t, err)
	run := strings.ReplaceAll(string(script), "'", `"`)
	shown := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(line, "#")
			if command = strings.TrimSpace(command); !strings.HasPrefix(command, "tenure ") {
				continue
			}
			shown++
			runs := slices.ContainsFunc([]string{"\n", " &", " >"}, func(end string) bool { return strings.Contains(run, "exec "+command+end) })
			require.True(t, runs, "docs.txtar does not run %s", command)
		}
	}
	require.Greater(t, shown, 20)
}

// service is a program that embeds tenure, with two tasks: service ID [ROLE...]. It runs until it
// is told to stop.
func service() {
	if err := serve(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

func serve(id string, roles []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	logging.Disable()
	env, err := tenure.OptionsFromEnv("TENURE")
	if err != nil {
		return err
	}
	env.Options.InstanceID, env.Options.Election.Role = id, ""
	coordinator, err := env.New()
	if err != nil {
		return err
	}
	for _, role := range roles {
		if _, err := coordinator.AddRole(role, tenure.ElectionOptions{
			LeaseTTL: env.Options.Election.LeaseTTL, RetryInterval: env.Options.Election.RetryInterval, Safety: env.Options.Election.Safety,
		}); err != nil {
			return err
		}
	}
	work := func(ctx context.Context, run tenure.TaskRun) error {
		switch {
		case len(run.Args) > 0 && run.Args[0] == "fail":
			return tenure.NoRetry(errors.New("no \x1b[31mpaper\x1b[0m"))
		case len(run.Args) > 0 && run.Args[0] == "hang":
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
	for _, task := range []tenure.Task{
		{Name: "report", Schedule: tenure.OnDemand(), Run: work},
		{Name: "invoices", Schedule: tenure.OnDemand(), Run: work},
		{Name: "rates", Schedule: tenure.OnDemand(), Run: work},
		{Name: "cleanup", Schedule: tenure.Every(24 * time.Hour), Run: func(context.Context, tenure.TaskRun) error { return nil }},
	} {
		if err := coordinator.Tasks().Register(task); err != nil {
			return err
		}
	}
	if os.Getenv("SERVICE_API") == "" {
		return coordinator.Run(ctx)
	}
	return serveAPI(ctx, coordinator, id)
}

// serveAPI runs a coordinator that serves its own HTTP API, to ann, and leaves the URL in a file.
func serveAPI(ctx context.Context, coordinator *tenure.Coordinator, id string) error {
	handler, err := tenurehttp.New(coordinator, tenurehttp.Options{Authorize: tenurehttp.BasicAuth(map[string]string{"ann": "password-of-ann"})})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	temporary := id + ".new"
	if err := os.WriteFile(temporary, []byte("http://"+listener.Addr().String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(temporary, id+".url"); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	server.RegisterOnShutdown(handler.Close)
	return tenurehttp.Service{Coordinator: coordinator, Server: server}.Serve(ctx, listener)
}

// code runs a command and succeeds if that ends with an exit code: code N COMMAND...
func code() {
	cmd := exec.Command(os.Args[2], os.Args[3:]...) //nolint:gosec // the script says so
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != os.Args[1] {
		fmt.Fprintln(os.Stderr, "code:", got, err)
		os.Exit(1)
	}
}

// lapse has the time pass after which the lease of a leader lapses that was killed: lapse [ROLE].
// One that ends by itself while a script waits would be lost by a leader on a starved machine, too.
// Others ask for it within TENURE_RETRY_INTERVAL.
func lapse() {
	options, err := redis.ParseURL(os.Getenv("TENURE_REDIS_URL"))
	if err != nil {
		panic(err)
	}
	ctx, client := context.Background(), redis.NewClient(options) // the process is about to end
	key := strings.Join(append([]string{os.Getenv("TENURE_NAMESPACE"), "leader"}, os.Args[1:]...), ":")
	now, err := client.Time(ctx).Result()
	if err != nil {
		panic(err)
	}
	_, err = client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key+":term", "until", now.UnixMilli()-1)
		return p.Del(ctx, key).Err()
	})
	if err != nil {
		panic(err)
	}
}

// redisCommand sends one command to the server and prints the reply as JSON.
func redisCommand() {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")}) // the process is about to end
	args := make([]any, len(os.Args)-1)
	for i, arg := range os.Args[1:] {
		args[i] = strings.ReplaceAll(arg, `\e`, "\x1b")
	}
	reply, err := client.Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text, err := json.Marshal(fmt.Sprint(reply))
	if err == nil {
		fmt.Println(string(text))
	}
}
