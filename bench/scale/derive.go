//go:build unix

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// constant is a figure that the derivation rests on.
type constant int

const (
	requestsRest constant = iota
	checksRest
	cpuRest
	bytesIn
	bytesOut
	memoryInstance
	memoryConnection
	cpuConnect
	cpuHint
	acquiresFailover
	changesReplaced
	requestsRole
	cpuRoleLeading
	cpuRoleFollowing
	memoryRole
	cpuNamespace
	cpuBus
	constantCount
)

var constantNames = [constantCount]struct{ name, unit string }{
	requestsRest:     {"`requests`", "requests a second, an instance at rest"},
	checksRest:       {"`checks`", "checks of the subscription a second, an instance of a small namespace at rest, each a message that is published"},
	cpuRest:          {"`cpu`", "µs of Redis a second, an instance at rest"},
	bytesIn:          {"`in`", "bytes a second that Redis receives of an instance at rest"},
	bytesOut:         {"`out`", "bytes a second that it sends to one"},
	memoryInstance:   {"`data`", "bytes of Redis, the record of an instance"},
	memoryConnection: {"`connection`", "bytes of Redis, a connection"},
	cpuConnect:       {"`greeting`", "µs of Redis, a connection that is opened"},
	cpuHint:          {"`hint`", "µs of Redis, each that hears a hint of an instance that joins or leaves, with the scripts of that"},
	acquiresFailover: {"`asks`", "acquires a candidate, at a fail-over"},
	changesReplaced:  {"`changes`", "changes of the registry, an instance that is replaced"},
	requestsRole:     {"`role requests`", "renewals a second, a role that is led"},
	cpuRoleLeading:   {"`role leading`", "µs of Redis a second, a role that is led"},
	cpuRoleFollowing: {"`role following`", "µs of Redis a second, a candidate that follows"},
	memoryRole:       {"`role data`", "bytes of Redis, a role"},
	cpuNamespace:     {"`namespace`", "µs of all masters a second, a namespace of 100 instances at rest"},
	cpuBus:           {"`bus`", "µs of each other node of a Cluster, a message that is published on one"},
}

// constants are the values by constant.
type constants [constantCount]float64

// set keeps what the page will show, so that the derivation follows from the page alone.
func (c *constants) set(which constant, value float64) {
	c[which], _ = strconv.ParseFloat(number(value), 64) // number wrote it
}

// parseConstants reads them from a page.
func parseConstants(page string) (c constants, err error) {
	for which := range constantCount {
		_, rest, ok := strings.Cut(page, "\n| "+constantNames[which].name+" | ")
		text, _, _ := strings.Cut(rest, " ")
		if c[which], err = strconv.ParseFloat(text, 64); !ok || err != nil {
			return c, fmt.Errorf("no constant %s", constantNames[which].name)
		}
	}
	return c, nil
}

// What the derivation assumes beside the constants.
const (
	deployMinutes   = 10  // over which each instance is replaced once
	busy            = 0.5 // of a core: with more, Redis answers late
	namespaceSize   = 100 // instances, of many namespaces
	candidates      = 3   // of each role, one of which leads
	connectionsEach = 3   // of an instance with a client of its own: what was seen of one is two to four
)

// scales are what the tables are for.
var scales = []float64{1_000, 10_000, 100_000, 1_000_000}

// derive computes what follows from the constants.
func derive(c constants) (string, error) {
	for which, value := range c {
		if value < 0 || math.IsNaN(value) || math.IsInf(value, 0) {
			return "", fmt.Errorf("the constant %s is %v", constantNames[which].name, value)
		}
	}
	if c[cpuRest] == 0 || c[cpuHint] == 0 || c[changesReplaced] == 0 || c[cpuNamespace] == 0 {
		return "", fmt.Errorf("a constant that is divided by is 0")
	}
	var b strings.Builder
	grid(&b, "One namespace on one Redis",
		"All instances hear all hints of the registry: what a hint costs grows with the instances. If many listen, several changes share a hint, so that hints take about a tenth of a core.", "instances", []line{
			{"requests a second, at rest", func(n float64) string { return big(n * c[requestsRest]) }},
			{"received and sent, MB/s", func(n float64) string { return figure(n * (c[bytesIn] + c[bytesOut]) / 1e6) }},
			{"Redis at rest, % of a core", func(n float64) string { return figure(restOf(c, n)) }},
			{"connections", func(n float64) string { return big(connectionsEach * n) }},
			{"memory of Redis, MB", func(n float64) string {
				return figure(n * (c[memoryInstance] + connectionsEach*c[memoryConnection]) / 1e6)
			}},
			{"a hint to all, ms of Redis", func(n float64) string { return figure(n * c[cpuHint] / 1e3) }},
			{"acquires at a fail-over", func(n float64) string { return big(failoverOf(c, n)) }},
			{"all connect after a restart, s of Redis", func(n float64) string { return figure(connectionsEach * n * c[cpuConnect] / 1e6) }},
			{fmt.Sprintf("a deploy of all in %d minutes, %% of a core", deployMinutes), func(n float64) string { return figure(deployOf(c, n)) }},
		})
	grid(&b, fmt.Sprintf("Namespaces of %d instances on one Redis", namespaceSize),
		"A hint reaches the instances of its namespace alone: what a deploy costs grows with the instances, and no faster.", "instances", []line{
			{"namespaces", func(n float64) string { return big(n / namespaceSize) }},
			{"Redis at rest, % of a core", func(n float64) string { return figure(ownOf(c, n, 1)) }},
			{"a hint, ms of Redis", func(float64) string { return figure(namespaceSize * c[cpuHint] / 1e3) }},
			{fmt.Sprintf("a deploy of all in %d minutes, %% of a core", deployMinutes), func(n float64) string {
				return figure(deployOf(c, namespaceSize) * n / namespaceSize)
			}},
		})
	grid(&b, fmt.Sprintf("Namespaces of %d instances on a Redis Cluster", namespaceSize),
		fmt.Sprintf("What a namespace costs falls to the master of its slot; each check of a subscription is told to every node. Masters are chosen so that none takes more than %d %% of a core at rest.", int(100*busy)),
		"instances", []line{
			{"masters", func(n float64) string { return mastersText(c, n) }},
			{"each of them for its namespaces, % of a core", func(n float64) string { return shareText(c, n, ownOf) }},
			{"each of them for messages of other nodes, % of a core", func(n float64) string { return shareText(c, n, busOf) }},
		})
	grid(&b, "Roles on one Redis", fmt.Sprintf("Each with %d candidates, in processes that have many roles, so that renewals travel together, up to 200 in one request.", candidates), "roles", []line{
		{"renewals a second", func(n float64) string { return big(n * c[requestsRole]) }},
		{"Redis, % of a core", func(n float64) string { return figure(rolesOf(c, n)) }},
		{"memory of Redis, MB", func(n float64) string { return figure(n * c[memoryRole] / 1e6) }},
	})
	instances, roles := 1e6*busy/c[cpuRest], 1e6*busy/(rolesOf(c, 1)*1e4)
	b.WriteString("### Where one Redis ends\n\n|  | ends at |\n|---|---:|\n")
	for _, row := range [][2]string{
		{"`maxclients` of Redis by default, 10,000", big(10_000/connectionsEach) + " instances"},
		{fmt.Sprintf("instances at rest take %d %% of a core", int(100*busy)), big(instances) + " instances"},
		{fmt.Sprintf("roles take %d %% of a core", int(100*busy)), big(roles) + " roles"},
		{fmt.Sprintf("a Cluster, namespaces of %d: messages of other nodes alone take %d %% of each", namespaceSize, int(100*busy)), big(busEnds(c)) + " instances"},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	return b.String(), nil
}

// restOf is what instances take of a core at rest, in %.
func restOf(c constants, instances float64) float64 { return 100 * instances * c[cpuRest] / 1e6 }

// When hints wait for each other, as scripts.lua says it.
const (
	manyListen = 500     // listeners; fewer hear of each change at once
	hintsApart = 1.25e-4 // s between two hints, for each listener
	longest    = 60      // s between two hints
)

// deployOf is what the hints of a deploy take of a core, in %: each instance is replaced, and all
// hear of it.
func deployOf(c constants, instances float64) float64 {
	hints := instances * c[changesReplaced] / (deployMinutes * 60)
	if instances > manyListen {
		hints = min(hints, 1/min(instances*hintsApart, longest))
	}
	return 100 * hints * instances * c[cpuHint] / 1e6
}

// What the ramp of a crowd begins with, see internal/lease, at the default lease.
const (
	rampSlow  = 0.3    // s, TTL/100
	rampGap   = 1e-3   // s
	rampEach  = 0.4e-6 // s
	rampKnown = 10_000 // instances of which it was measured how many ask
)

// failoverOf is how many ask at a fail-over: they do until all have heard the hint of the grant,
// and what comes on top of the ramp grows with it.
func failoverOf(c constants, instances float64) float64 {
	ramp := func(n float64) float64 {
		return rampSlow / max(rampGap, n*rampEach) * math.Expm1(n*c[cpuHint]/1e6/rampSlow)
	}
	return min(instances, rampKnown*c[acquiresFailover]*ramp(instances)/ramp(rampKnown))
}

func rolesOf(c constants, roles float64) float64 {
	return 100 * roles * (c[cpuRoleLeading] + (candidates-1)*c[cpuRoleFollowing]) / 1e6
}

// ownOf is what the namespaces of a master, or of a Redis that stands alone, take of it, busOf what
// messages of others do; both in %.
func ownOf(c constants, instances, masters float64) float64 {
	return 100 * instances / namespaceSize * c[cpuNamespace] / 1e6 / masters
}

func busOf(c constants, instances, masters float64) float64 {
	return 100 * instances * c[checksRest] * c[cpuBus] / 1e6 * (masters - 1) / masters
}

// busEnds is how many instances there are if messages alone keep every node busy.
func busEnds(c constants) float64 { return 1e6 * busy / max(1e-9, c[checksRest]*c[cpuBus]) }

// mastersFor is how many masters it takes, 0: no number is enough.
func mastersFor(c constants, instances float64) float64 {
	for masters := 3.0; masters <= 1000; masters++ {
		if ownOf(c, instances, masters)+busOf(c, instances, masters) <= 100*busy {
			return masters
		}
	}
	return 0
}

func mastersText(c constants, instances float64) string {
	if masters := mastersFor(c, instances); masters > 0 {
		return big(masters)
	}
	return "no number"
}

func shareText(c constants, instances float64, share func(constants, float64, float64) float64) string {
	masters := mastersFor(c, instances)
	if masters == 0 {
		masters = 1000
	}
	return figure(share(c, instances, masters))
}

// line is a row of a grid.
type line struct {
	what string
	of   func(n float64) string
}

func grid(b *strings.Builder, title, text, unit string, lines []line) {
	fmt.Fprintf(b, "### %s\n\n%s\n\n| %s |", title, text, unit)
	for _, n := range scales {
		b.WriteString(" " + big(n) + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(scales)) + "\n")
	for _, l := range lines {
		b.WriteString("| " + l.what + " |")
		for _, n := range scales {
			b.WriteString(" " + l.of(n) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// big is a whole number of which two digits count, or as many as there are above that.
func big(value float64) string {
	if value >= 100 {
		unit := math.Pow(10, math.Floor(math.Log10(value))-1)
		value = math.Round(value/unit) * unit
	}
	return thousands(int(math.Round(value)))
}

// figure has two digits that count.
func figure(value float64) string {
	if value >= 100 {
		return big(value)
	}
	text := strconv.FormatFloat(value, 'g', 2, 64)
	value, _ = strconv.ParseFloat(text, 64) // it was written the line above
	return strconv.FormatFloat(value, 'f', -1, 64)
}
