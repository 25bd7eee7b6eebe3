//go:build unix

package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

func TestMain(m *testing.M) {
	redistest.Silence()
	m.Run()
}

// The whole program works with few instances. No figure is asserted.
func TestSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("starts redis-server")
	}
	t.Parallel()
	o := options{
		instances: 20, rounds: 1, roles: []int{20, 40}, idle: []int{3}, only: "instances,roles,idle", commit: "abc",
		window: 500 * time.Millisecond, lease: time.Second, heartbeat: 500 * time.Millisecond,
	}
	var out bytes.Buffer
	if err := run(o, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"### 20 instances at rest", "### A fail-over", "### A deploy", "| replaced | 1 |  |", "### A restart of Redis", "### 20 roles in one process", "### 40 roles in one process", "| 3 processes: ", "Commit abc"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// The Cluster too: no term ends on the masters that live.
func TestSmallCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts redis-server")
	}
	t.Parallel()
	p := new(page)
	o := options{instances: 8, namespaces: []int{1, 4}, window: 500 * time.Millisecond, lease: 10 * time.Second, heartbeat: time.Second}
	if err := redistest.Do(func(tb redistest.TB) { measureCluster(tb, o, p) }); err != nil {
		t.Fatal(err)
	}
	if text := p.measured(); !strings.Contains(text, "namespaces on other masters | 0 of ") {
		t.Error(text)
	}
}

// docs/scale.md says what follows from the constants that it shows.
func TestPageFollowsFromItsConstants(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "scale.md"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConstants(string(page))
	if err != nil {
		t.Fatal(err)
	}
	want, err := derive(c)
	if err != nil {
		t.Fatal(err)
	}
	from, to, err := block(string(page), blockDerived)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(page[from:to]); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("`make scale` writes the tables; the page has\n%s\nand from its constants follows\n%s", got, want)
	}
}

// What was measured is read back as it was written, and a block is replaced as a whole.
func TestBlocks(t *testing.T) {
	t.Parallel()
	p := new(page)
	for which := range constantCount {
		p.constants.set(which, 1234.5678/float64(1+which))
	}
	path := filepath.Join(t.TempDir(), "page.md")
	text := "before\n<!-- figures: scale -->\nold\n<!-- end of figures -->\nbetween\n<!-- figures: scale, derived -->\n<!-- end of figures -->\nafter\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(path, p.measured(), "derived"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := parseConstants(string(got)); err != nil || c != p.constants {
		t.Errorf("%v, %v instead of %v", err, c, p.constants)
	}
	for _, want := range []string{"before\n<!--", "-->\nbetween\n", "\nderived\n", "-->\nafter\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Error("the old block is still there")
	}
	if _, err := replaced("no block", blockMeasured, "x"); err == nil {
		t.Error("a page without the block is accepted")
	}
	if _, err := parseConstants("nothing"); err == nil {
		t.Error("a page without constants is accepted")
	}
}

// The formulae, by figures that can be reckoned by hand.
func TestDerive(t *testing.T) {
	t.Parallel()
	c := constants{
		requestsRest: 0.25, checksRest: 0.125, cpuRest: 10, bytesIn: 100, bytesOut: 100, memoryInstance: 1000, memoryConnection: 3000, cpuConnect: 100,
		cpuHint: 5, acquiresFailover: 1, changesReplaced: 4, requestsRole: 0.1, cpuRoleLeading: 2, cpuRoleFollowing: 1, memoryRole: 500, cpuNamespace: 2000, cpuBus: 2,
	}
	text, err := derive(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| requests a second, at rest | 250 | 2,500 | 25,000 | 250,000 |",
		"| received and sent, MB/s | 0.2 | 2 | 20 | 200 |",
		"| Redis at rest, % of a core | 1 | 10 | 100 | 1,000 |",
		"| Redis at rest, % of a core | 2 | 20 | 200 | 2,000 |",
		"| memory of Redis, MB | 10 | 100 | 1,000 | 10,000 |",
		"| a hint to all, ms of Redis | 5 | 50 | 500 | 5,000 |",
		"| a deploy of all in 10 minutes, % of a core | 3.3 | 4 | 4 | 8.3 |",
		"| a deploy of all in 10 minutes, % of a core | 0.33 | 3.3 | 33 | 330 |",
		"| masters | 3 | 3 | 5 | 79 |",
		"| Redis, % of a core | 0.4 | 4 | 40 | 400 |",
		"| instances at rest take 50 % of a core | 50,000 instances |",
		"messages of other nodes alone take 50 % of each | 2,000,000 instances |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	c[cpuRest] = math.NaN()
	if _, err := derive(c); err == nil {
		t.Error("NaN is accepted")
	}
	c[cpuRest] = 0
	if _, err := derive(c); err == nil {
		t.Error("a division by 0 is accepted")
	}
}

// Requests are told apart by their keys; a call that renews many leases is as many.
func TestKinds(t *testing.T) {
	t.Parallel()
	values := func(n int) []any { return make([]any, n) }
	call := func(argv int, keys ...any) []any {
		return append(append([]any{"evalsha", "sha", len(keys)}, keys...), values(argv)...)
	}
	for want, args := range map[kind][]any{
		acquires:   call(15, "x:leader", "s", "t", "terms", "log"),
		renewals:   call(12, "x:leader:role", "s", "t"),
		releases:   call(10, "x:leader", "s", "t", "terms"),
		heartbeats: call(10, "x:instance:a:heartbeat", "i", "b", "l", "c", "w", "u"),
		sweeps:     call(4, "x:beats", "i"),
		checks:     {"PUBLISH", "channel", "x"},
		polls:      {"PUBSUB", "NUMSUB", "channel"},
		others:     {"evalsha", "sha", "none"},
	} {
		if got, n := kindOf(args); got != want || n != 1 {
			t.Errorf("%v is taken for %d of the %s", args, n, kindNames[got])
		}
	}
	if got, n := kindOf(call(13, "x:leader", "s", "t", "x:leader:role", "s", "t", "x:leader:other", "s", "t")); got != renewals || n != 3 {
		t.Errorf("three renewals are taken for %d of the %s", n, kindNames[got])
	}
}

func TestOnlyWhatCanBeMeasured(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]options{
		"nonsense": {rounds: 1, window: time.Second, only: "nonsense"},
		"least":    {window: time.Second},
		"-only":    {rounds: 1, window: time.Second, only: "idle", out: "page.md"},
		"two":      {rounds: 1, window: time.Second, instances: 1},
	} {
		if name == "least" {
			name = "less than one"
		}
		if err := run(o, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
