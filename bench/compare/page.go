//go:build unix

package main

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/bench/internal/contender"
)

// page renders the comparison; every figure in it is of this comparison.
func (c *comparison) page() string {
	var b strings.Builder
	all := contender.All()
	fmt.Fprintf(&b, "# Comparison\n\n")
	fmt.Fprintf(&b, "What tenure and four other Go libraries do under the same faults. `make compare` writes this page, and every figure is of that one run.\n\n")
	fmt.Fprintf(&b, "Figures are **median (maximum)** of %d runs, in milliseconds unless the row says otherwise. Each state was looked at every %d ms. *Not seen*: it did not happen while it was watched.\n\n"+
		"- *Own check* is the call that tells a program whether it leads, and *work context* the context that its work runs under: [the libraries](#the-libraries) has those of each.\n"+
		"- *Belief beyond the lease* is for how long after the end of the lease in the store a holder still believed that it leads. Negative: it stopped before the lease could have ended.\n", c.runs, lookInterval.Milliseconds())
	for _, s := range scenarios() {
		if !c.played(s.name) {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", s.name, upper(s.what))
		row(&b, "", all, func(w contender.Contender) string { return w.Name })
		row(&b, "---", all, func(contender.Contender) string { return "---:" })
		for _, figure := range s.figures {
			row(&b, figure, all, func(w contender.Contender) string { return c.figure(s.name, w.Name, figure) })
		}
	}
	fmt.Fprintf(&b, "\n## The libraries\n\n| | made for | own check | work context | fencing token |\n|---|---|---|---|---|\n")
	for _, w := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", w.Name, w.For, w.Own, w.Work, w.Token)
	}
	b.WriteString(reading)
	c.notBegun(&b)
	c.method(&b)
	return b.String()
}

// reading is what a reader should know before drawing conclusions; it holds no figures.
const reading = `
## What the table does not show

- tenure is slower because it waits rather than risk two leaders: the first election on a Redis younger than the TTL waits, an election
  on an empty one waits for living leaders to speak up, and after a loss of data others hold off while the incumbent takes its lease
  back. If the incumbent does not do so, nobody leads for about a TTL.
- A request of one library does not do what a request of another does: a script of tenure keeps a token, a history and hints beside the lease.
- redsync and rueidislock can hold a lock by a majority of several independent masters or keys. tenure uses one Redis, or one
  Sentinel or Cluster deployment; here all of them had one redis-server.
- redsync and redislock leave the extension of a lock to their user. Other loops than the measured one are possible, for example with a
  time-out on each call; the figures are those of the loop below.
- client-go is run with ReleaseOnCancel, because a hand-over without a wait for the lease needs it. client-go then asks the API server
  once more before it says that it has stopped leading, and waits for the answer as long as the renew deadline. Its belief beyond the
  lease includes that wait. Its requests have no time-out of their own unless rest.Config gives them one; here it does not. Its own documentation says
  that it does not guarantee that only one client acts as a leader.
- client-go keeps its Lease in etcd. The store here is a stand-in, in memory, for the three requests it makes: its figures say how
  the client behaves, not how an API server does. Loss of data is no scenario there.
- No library can stop a write that is late. Only a token that the resource checks protects the resource from it.
`

// notBegun lists the runs that came to nothing.
func (c *comparison) notBegun(b *strings.Builder) {
	if len(c.failures) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Runs without figures\n\nThey are missing in the n of their cells.\n\n")
	for _, f := range c.failures {
		text, _, _ := strings.Cut(f.Error(), "\n")
		fmt.Fprintf(b, "- %s\n", text)
	}
}

func (c *comparison) method(b *strings.Builder) {
	fmt.Fprintf(b, "\n## How it was measured\n\n")
	fmt.Fprintf(b, "Lease %v, renewed every %v (client-go: lease %v, renew deadline %v, retry %v, `ReleaseOnCancel`, a new election after each lost one). ", leaseTTL, leaseTTL/3, leaseTTL, leaseTTL*2/3, leaseTTL/3)
	fmt.Fprintf(b, "redsync and redislock: `Extend` or `Refresh` every %v under the context of the work, which the first failure cancels; redsync's user also looks at `Until`. rueidislock: `WithContext`, one key, `TryNextAfter` as long as the lease, because with its default of 20 ms a candidate whose first request takes longer may wait for ever. Redis clients have their libraries' default options. ", leaseTTL/3)
	fmt.Fprintf(b, "Each run has a redis-server of its own, %d s old unless the scenario says otherwise, and a TCP proxy per candidate (`internal/proof/redistest`); the moment of the fault within the renew interval is drawn from the seed. Beliefs are read from the libraries' own calls and compared on one host's clock; the end of the lease is read from the store.\n\n", storeAge)
	fmt.Fprintf(b, "Seed %d, commit %s, %s, %d processors, %s/%s, %s; the whole took %v.\n\n", c.seed, c.commit, runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, redisVersion(), c.took.Round(time.Second))
	fmt.Fprintf(b, "| module | version |\n|---|---|\n")
	for _, w := range contender.All() {
		fmt.Fprintf(b, "| %s | %s |\n", w.Module, c.version(w.Module))
	}
	fmt.Fprintf(b, "| github.com/redis/go-redis/v9 | %s |\n", c.version("github.com/redis/go-redis/v9"))
}

func (c *comparison) version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == module && dep.Replace == nil {
			return dep.Version
		}
	}
	return "commit " + c.commit
}

func redisVersion() string {
	out, err := exec.CommandContext(context.Background(), "redis-server", "--version").Output()
	if err != nil {
		return "redis-server of unknown version"
	}
	for field := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(field, "v="); ok {
			return "redis-server " + v
		}
	}
	return "redis-server of unknown version"
}

func row(b *strings.Builder, head string, all []contender.Contender, text func(contender.Contender) string) {
	fmt.Fprintf(b, "| %s |", head)
	for _, w := range all {
		fmt.Fprintf(b, " %s |", text(w))
	}
	b.WriteString("\n")
}

func (c *comparison) played(scenario string) bool {
	return slices.ContainsFunc(contender.All(), func(w contender.Contender) bool {
		return len(c.results[cell{scenario, w.Name}]) > 0
	})
}

// figure is one cell of the page.
func (c *comparison) figure(scenario, who, name string) string {
	var all []float64
	for _, r := range c.results[cell{scenario, who}] {
		all = append(all, r[name])
	}
	if len(all) == 0 {
		return "–"
	}
	slices.Sort(all)
	switch name {
	case staleOwn, staleWork:
		var sum float64
		for _, f := range all {
			sum += f
		}
		return fmt.Sprintf("%.0f of %d", sum, len(all))
	case commands, idleCmds:
		return fmt.Sprintf("%.1f", all[len(all)/2])
	case sent, idleSent:
		return fmt.Sprintf("%.0f", all[len(all)/2])
	}
	format := "%.0f"
	if name == beyondOwn || name == beyondWork {
		format = "%+.0f"
	}
	text := fmt.Sprintf("%s (%s)", number(format, all[len(all)/2]), number(format, all[len(all)-1]))
	if len(all) < c.runs {
		text += fmt.Sprintf(", n = %d", len(all))
	}
	return text
}

func number(format string, f float64) string {
	if math.IsInf(f, 1) {
		return "not seen"
	}
	return fmt.Sprintf(format, f)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
