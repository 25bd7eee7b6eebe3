package tenureprom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/telemetry"
)

// TestKitNamesItsMetrics: the alert rules, their cases and the dashboard name metrics that there
// are, with labels that they have.
func TestKitNamesItsMetrics(t *testing.T) {
	labels := make(map[string][]string)
	for _, m := range telemetry.Metrics {
		names := []string{m.Name}
		if m.Kind == telemetry.Histogram {
			names = []string{m.Name + "_bucket", m.Name + "_sum", m.Name + "_count"}
		}
		for _, name := range names {
			labels[name] = append([]string{"namespace", "exported_namespace", "instance", "le"}, m.Labels...)
		}
	}
	series := regexp.MustCompile(`\b(tenure_[a-z_]+)(?:\{([^}]*)\})?`)
	label := regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)\\?"`)
	for _, path := range []string{"prometheus/tenure.rules.yml", "prometheus/tenure.rules.test.yml", "grafana/tenure.json"} {
		text, err := os.ReadFile(filepath.Join("../deploy", path))
		require.NoError(t, err)
		found := series.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, found, path)
		for _, named := range found {
			require.Contains(t, labels, named[1], "%s: no such metric", path)
			for _, l := range label.FindAllStringSubmatch(named[2], -1) {
				require.Contains(t, labels[named[1]], l[1], "%s: %s has no label %s", path, named[1], l[1])
			}
		}
	}
}

// TestKitKeepsServicesApart: Prometheus renames the label namespace if the target has one, too.
// What is added up over processes is so over those of one service, and says of which.
func TestKitKeepsServicesApart(t *testing.T) {
	for _, path := range []string{"prometheus/tenure.rules.yml", "grafana/tenure.json"} {
		text, err := os.ReadFile(filepath.Join("../deploy", path))
		require.NoError(t, err)
		lists := regexp.MustCompile(`\b(?:by|on) ?\(([^)]*)\)`).FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, lists, path)
		for _, list := range lists {
			require.Regexp(t, `^namespace, exported_namespace\b`, list[1], path)
		}
		for _, summary := range regexp.MustCompile(`(?m)^ *summary: (.*)$`).FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, `^"{{ or \$labels.exported_namespace \$labels.namespace }}: `, summary[1])
		}
	}
}

// TestEveryAlertHasARunbookEntry: with what it means, what to look at, to do and not to do.
func TestEveryAlertHasARunbookEntry(t *testing.T) {
	rules, err := os.ReadFile("../deploy/prometheus/tenure.rules.yml")
	require.NoError(t, err)
	runbook, err := os.ReadFile("../docs/runbook.md")
	require.NoError(t, err)
	cases, err := os.ReadFile("../deploy/prometheus/tenure.rules.test.yml")
	require.NoError(t, err)
	entries := make(map[string]string)
	for _, entry := range strings.Split(string(runbook), "\n## ")[1:] {
		name, text, _ := strings.Cut(entry, "\n")
		entries[name] = text
	}
	alerts := regexp.MustCompile(`alert: Tenure(\w+)`).FindAllStringSubmatch(string(rules), -1)
	require.Len(t, entries, len(alerts), "an entry without an alert")
	for _, alert := range alerts {
		name := alert[1]
		for _, part := range []string{"**Means:**", "**Users notice:**", "**Do:**", "**Do not:**", "```\n"} {
			require.Contains(t, entries[name], part, name)
		}
		require.Contains(t, string(rules), "runbook.md#"+strings.ToLower(name)+"\n")
		require.Contains(t, string(cases), "alertname: Tenure"+name+"\n")
	}
}

// tools returns promtool and prometheus, and skips the test if they cannot be had outside of CI.
func tools(t *testing.T) (promtool, server string) {
	if testing.Short() {
		t.Skip("it takes Prometheus")
	}
	var problem strings.Builder
	script := exec.CommandContext(t.Context(), "../tools/promtool.sh")
	script.Stderr = &problem
	out, err := script.Output()
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(problem.String())
	}
	require.NoError(t, err, problem.String())
	paths := strings.Fields(string(out))
	require.Len(t, paths, 2)
	return paths[0], paths[1]
}

// TestAlertRules: each fires for what it names, and for nothing else.
func TestAlertRules(t *testing.T) {
	promtool, _ := tools(t)
	cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", "tenure.rules.test.yml")
	cmd.Dir = "../deploy/prometheus"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// TestPrometheusAnswersTheDashboard: a Prometheus that scrapes a process has an answer to every
// query of the dashboard, and loads the rules.
func TestPrometheusAnswersTheDashboard(t *testing.T) {
	_, prometheus := tools(t)
	server := miniredis.RunT(t)
	p := newProcess(t, server, "a")
	require.NoError(t, p.Tasks().Register(tenure.Task{Name: "tidy", Schedule: tenure.Every(100 * time.Millisecond), Run: nothing}))
	scraped := httptest.NewServer(promhttp.HandlerFor(p.metrics, promhttp.HandlerOpts{}))
	defer scraped.Close()
	defer p.run()()
	p.eventually(1, "tenure_instances", "status=active")
	p.eventually(1, "tenure_task_runs_total", "task=tidy", "status=succeeded")

	api := startPrometheus(t, prometheus, strings.TrimPrefix(scraped.URL, "http://"))
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	text, err := os.ReadFile("../deploy/grafana/tenure.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &board))
	require.NotEmpty(t, board.Panels)
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			query := strings.NewReplacer("$namespace", "shop", "$role", "default", "$__rate_interval", "5m").Replace(target.Expr)
			require.Eventually(t, func() bool { return answers(t, api, query) }, patience, 200*time.Millisecond, "%s: %s", panel.Title, query)
		}
	}
}

// TestDashboardIsOfNow: a number is that of now, since Grafana else shows the last one of the whole
// range: a process that was gone for hours would lead. A count over time leaves nothing out however
// long the range is. Without thresholds of its own, Grafana shows 80 instances in red.
func TestDashboardIsOfNow(t *testing.T) {
	var board struct {
		Panels []struct {
			Type        string `json:"type"`
			Title       string `json:"title"`
			Interval    string `json:"interval"`
			FieldConfig struct {
				Defaults struct {
					Thresholds *struct{} `json:"thresholds"`
				} `json:"defaults"`
			} `json:"fieldConfig"`
			Targets []struct {
				Expr    string `json:"expr"`
				Instant bool   `json:"instant"`
			} `json:"targets"`
		} `json:"panels"`
	}
	text, err := os.ReadFile("../deploy/grafana/tenure.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &board))
	for _, panel := range board.Panels {
		now := panel.Type == "stat" || panel.Type == "table"
		if panel.Type == "stat" || panel.Type == "state-timeline" {
			require.NotNil(t, panel.FieldConfig.Defaults.Thresholds, panel.Title)
		}
		for _, target := range panel.Targets {
			require.Equal(t, now, target.Instant, panel.Title)
			require.NotRegexp(t, `\[\d+[sm]\]`, strings.ReplaceAll(target.Expr, "[30m]", ""), panel.Title)
			if strings.Contains(target.Expr, "[$__rate_interval]") { // no less than a few scrapes
				require.Equal(t, "5m", panel.Interval, panel.Title)
			}
		}
	}
}

// TestCrashIsTimeWithoutALeader: nobody leads between the death of a leader and the end of its
// lease, though all others know of it for so long. The dashboard shows that time.
func TestCrashIsTimeWithoutALeader(t *testing.T) {
	text, err := os.ReadFile("../deploy/grafana/tenure.json")
	require.NoError(t, err)
	found := regexp.MustCompile(`"expr": "(1 - avg_over_time\(.*)"`).FindStringSubmatch(string(text))
	require.NotNil(t, found)
	query := strings.NewReplacer(`\"`, `"`, "$namespace", "shop", "$role", "default", "$__rate_interval", "5m").Replace(found[1])
	promtool, _ := tools(t)
	cases := fmt.Sprintf(`
tests:
  - interval: 15s
    input_series:
      - { series: 'tenure_leader{namespace="shop",role="default",instance="a"}', values: '1x9 stale' }
      - { series: 'tenure_leader{namespace="shop",role="default",instance="b"}', values: '0x14 1x5' }
    promql_expr_test:
      - { expr: '%s', eval_time: 285s, exp_samples: [{ labels: '{namespace="shop",role="default"}', value: 0.25 }] }
`, query)
	path := filepath.Join(t.TempDir(), "test.yml")
	require.NoError(t, os.WriteFile(path, []byte(cases), 0o600))
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", path).CombinedOutput()
	require.NoError(t, err, string(out))
}

// startPrometheus starts a Prometheus that scrapes one address, and returns its API.
func startPrometheus(t *testing.T, path, target string) (api string) {
	dir := t.TempDir()
	rules, err := filepath.Abs("../deploy/prometheus/tenure.rules.yml")
	require.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n  - {job_name: shop, static_configs: [{targets: [%q]}]}\n", rules, target)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &log, &log, patience
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it ends by the signal
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return "http://" + address
}

// answers reports whether a query has an answer that is not empty.
func answers(t *testing.T, api, query string) bool {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api+"/api/v1/query?query="+url.QueryEscape(query), nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false // it does not listen yet
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return false // it is starting: "Service Unavailable"
	}
	require.Equal(t, "success", answer.Status, "%s: %s", query, answer.Error)
	return len(answer.Data.Result) > 0
}
