//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
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
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"tenure":  func() { os.Exit(cli.Main(os.Args[1:])) },
		"service": service,
		"redis":   redisCommand,
		"until":   until,
	})
}

// patience is far longer than anything in a script takes on a starved machine.
const patience = "60s"

// TestScripts runs testdata/script on a real redis-server, each script in a namespace of its own.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("needs redis-server")
	}
	server := redistest.Start(t)
	examples, err := filepath.Abs("../../examples/sidecar")
	require.NoError(t, err)
	python := "" // the folder of the interpreter itself: what stands for it may want the home of the user
	if path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output(); err == nil {
		python = filepath.Dir(strings.TrimSpace(string(path)))
	}
	testscript.Run(t, testscript.Params{
		Dir:             "testdata/script",
		ContinueOnError: false,
		Setup: func(e *testscript.Env) error {
			name := strings.TrimSuffix(filepath.Base(e.WorkDir), ".txtar")
			name = strings.TrimPrefix(name, "script-")
			e.Setenv("TENURE_REDIS_URL", "redis://"+server.Addr())
			e.Setenv("TENURE_NAMESPACE", name)
			e.Setenv("TENURE_RESTART_GUARD", "-1s") // this redis was just started, and nothing was lost
			e.Setenv("TENURE_LEASE_TTL", "10s")
			e.Setenv("TENURE_HEARTBEAT_INTERVAL", "1s")
			e.Setenv("TENURE_HEARTBEAT_TTL", "4s")
			e.Setenv("TENURE_TIMEOUT", patience)
			e.Setenv("TENURE_BY", "ops@desk")
			e.Setenv("REDIS_ADDR", server.Addr())
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("HOSTNAME", "desk")
			e.Setenv("EXAMPLES", examples)
			e.Setenv("PATH", python+string(os.PathListSeparator)+e.Getenv("PATH"))
			return nil
		},
	})
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
			require.Contains(t, run, "exec "+command+"\n", "docs.txtar does not run it")
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
		if _, err := coordinator.AddRole(role, tenure.ElectionOptions{LeaseTTL: env.Options.Election.LeaseTTL, Safety: env.Options.Election.Safety}); err != nil {
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
	return coordinator.Run(ctx)
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
