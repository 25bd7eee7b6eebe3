//go:build unix

package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// A page has the medians, the ratios to the floor, and a plot that is XML whatever the names are.
func TestPage(t *testing.T) {
	t.Parallel()
	p := &page{commit: "abc", rounds: 3}
	table := p.table("A <title>", "Text.", floor, "tenure", "redsync")
	r := table.row("time, µs", "%.0f")
	for i, v := range []float64{30, 10, 20} {
		r.add(floor, v/10)
		r.add("tenure", v)
		if i == 0 {
			r.add("redsync", 1000)
		}
	}
	r.ratio = true
	table.row("other", "%.1f").add("tenure", 1.25)
	table.plot, table.file = r, "plot.svg"
	text := p.text()
	for _, want := range []string{"| time, µs | 2 | 20 (10.0 ×) | 1000 (500.0 ×) |", "| other | – | 1.2 | – |", "medians of 3 rounds", "Commit abc"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	r.name = `<&">`
	decoder := xml.NewDecoder(strings.NewReader(table.svg()))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// The output of `go test -bench` is read by unit, of several runs too.
func TestBenchmarks(t *testing.T) {
	t.Parallel()
	got := benchmarks([]byte("goos: linux\nBenchmarkA/x=1-2 \t 1\t 0 ns/op\t 3.5 p50-ms\t 7 B/op\nBenchmarkA/x=1-2 \t 1\t 4.5 p50-ms\nPASS\n"))
	m := got["A/x=1"]
	if m == nil || !slices.Equal(m.values["p50-ms"], []float64{3.5, 4.5}) || m.values["ns/op"] != nil {
		t.Fatalf("%+v", got)
	}
}

func TestOnlyKnownSections(t *testing.T) {
	t.Parallel()
	if err := run(options{rounds: 1, only: "calls,nonsense"}); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("%v", err)
	}
	if err := run(options{only: "calls"}); err == nil {
		t.Error("no round is accepted")
	}
}

// Each library takes, renews and gives back what it is measured by.
func TestCallers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts redis-server")
	}
	err := redistest.Do(func(tb redistest.TB) {
		server := redistest.Start(tb)
		all, err := callers(options{root: "../.."}, tb, server)
		if err != nil {
			tb.Fatalf("%v", err)
		}
		ctx, asking := context.Background(), server.Client(tb)
		for _, c := range all {
			if !slices.Contains(columns, c.name) || sends[c.name] == nil {
				tb.Fatalf("%s is in no column", c.name)
			}
			if err := c.pair(ctx, c.name+"-pair"); err != nil {
				tb.Fatalf("%s: %v", c.name, err)
			}
			if c.holding == nil {
				continue
			}
			renew, err := c.holding(ctx, c.name)
			if err != nil {
				tb.Fatalf("%s: %v", c.name, err)
			}
			asking.ConfigResetStat(ctx)
			for range 3 {
				if err := renew(ctx); err != nil {
					tb.Fatalf("%s: %v", c.name, err)
				}
			}
			if spent := redisSpent(tb, asking, c.name); spent <= 0 {
				tb.Fatalf("%s has cost Redis %v", c.name, spent)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What is told of runs are how many there were since the last time, and their shares.
func TestLateness(t *testing.T) {
	t.Parallel()
	l := new(lateness)
	if runs, late := l.take(); runs != 0 || late != nil {
		t.Errorf("of none: %d, %v", runs, late)
	}
	for i := range 200 {
		l.add(time.Duration(200 - i))
	}
	if l.runs() != 200 {
		t.Errorf("%d runs", l.runs())
	}
	if runs, late := l.take(); runs != 200 || !slices.Equal(late, []time.Duration{101, 199, 200}) {
		t.Errorf("%d, %v", runs, late)
	}
	if l.runs() != 0 {
		t.Error("they are told twice")
	}
}
