//go:build unix

package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// page is what was measured.
type page struct {
	commit string
	rounds int
	took   time.Duration
	tables []*table
}

// table has a column for each that was measured, the first of which is the floor if there is one.
type table struct {
	title, text string
	columns     []string
	rows        []*row
	plot        *row   // that is drawn; nil: none
	file        string // of the plot
}

// row is a quantity, by column.
type row struct {
	name   string
	format string // of a figure
	values map[string][]float64
	ratio  bool   // beside each figure what it is of the floor's
	text   string // in place of figures
}

func (p *page) table(title, text string, columns ...string) *table {
	t := &table{title: title, text: text, columns: columns}
	p.tables = append(p.tables, t)
	return t
}

func (t *table) row(name, format string) *row {
	for _, r := range t.rows {
		if r.name == name {
			return r
		}
	}
	r := &row{name: name, format: format, values: make(map[string][]float64)}
	t.rows = append(t.rows, r)
	return r
}

func (r *row) add(who string, value float64) { r.values[who] = append(r.values[who], value) }

// median is that of a column; NaN: nothing was measured.
func (r *row) median(who string) float64 {
	all := slices.Clone(r.values[who])
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// floor is the name of the column of the bare commands.
const floor = "floor"

func (r *row) cell(who string) string {
	if r.text != "" {
		return r.text
	}
	value := r.median(who)
	if math.IsNaN(value) {
		return "–"
	}
	text := fmt.Sprintf(r.format, value)
	if bare := r.median(floor); r.ratio && who != floor && bare > 0 {
		text += fmt.Sprintf(" (%.1f ×)", value/bare)
	}
	return text
}

func (p *page) text() string {
	var b strings.Builder
	b.WriteString("# Performance\n\nWhat tenure costs, beside the bare commands that any library has to send (*floor*) and beside other libraries, in one run. `make bench` writes this page.\n\n")
	fmt.Fprintf(&b, "Figures are medians of %d rounds; each round measures everybody in turn, on the same machine. In brackets: how many times the floor. "+
		"Compare figures of one run: on machines that were measured, the floor of a renewal took Redis 1.6 to 10.6 µs, and all else grew with it. "+
		"No test asserts a time; allocations and round trips are held by `TestAllocations` and `TestAllocationsOfARun`.\n", p.rounds)
	for _, t := range p.tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", t.title, t.text)
		if t.plot != nil {
			fmt.Fprintf(&b, "![%s](images/%s)\n\n", t.plot.name, t.file)
		}
		b.WriteString("|  | " + strings.Join(t.columns, " | ") + " |\n|---|" + strings.Repeat("---:|", len(t.columns)) + "\n")
		for _, r := range t.rows {
			b.WriteString("| " + r.name + " |")
			for _, who := range t.columns {
				b.WriteString(" " + r.cell(who) + " |")
			}
			b.WriteString("\n")
		}
	}
	fmt.Fprintf(&b, "\n## How it was measured\n\nCommit %s, %s, %d processors, %s/%s, %s, on loopback; the whole took %v. Redis's own time is that of its `INFO commandstats`.\n\n",
		p.commit, runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, redisVersion(), p.took.Round(time.Second))
	b.WriteString("| module | version |\n|---|---|\n")
	for _, module := range []string{"github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/rueidis", "k8s.io/client-go", "github.com/go-co-op/gocron/v2", "github.com/redis/go-redis/v9"} {
		fmt.Fprintf(&b, "| %s | %s |\n", module, version(module))
	}
	return b.String()
}

// write writes the page, and the plots into a folder beside it.
func (p *page) write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	for _, t := range p.tables {
		if t.plot == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "images", t.file), []byte(t.svg()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// svg draws the row of the plot as bars, by the logarithm: libraries lie orders of magnitude apart.
func (t *table) svg() string {
	const width, bar, gap, left, right = 640, 22, 8, 150, 90
	var who []string
	least, most := math.Inf(1), 0.0
	for _, name := range t.columns {
		if v := t.plot.median(name); v > 0 {
			who = append(who, name)
			least, most = min(least, v), max(most, v)
		}
	}
	from, to := math.Floor(math.Log10(least)-0.3), math.Log10(most)
	var b strings.Builder
	height := 34 + len(who)*(bar+gap)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s" font-family="system-ui, sans-serif" font-size="13">`+"\n", width, height, escaped(t.plot.name))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/><text x="8" y="18" fill="#1f2328">%s, logarithmic</text>`+"\n", width, height, escaped(t.plot.name))
	for i, name := range who {
		v := t.plot.median(name)
		y := 30 + i*(bar+gap)
		length := float64(width-left-right) * (math.Log10(v) - from) / max(to-from, 1e-9)
		colour := "#8c959f"
		if name == "tenure" {
			colour = "#0969da"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#1f2328">%s</text>`, left-8, y+16, escaped(name))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" rx="3" fill="%s"/>`, left, y, length, bar, colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#1f2328">%s</text>`+"\n", float64(left)+length+6, y+16, escaped(fmt.Sprintf(t.plot.format, v)))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder refuses nothing
	return b.String()
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return "unknown"
}

func redisVersion() string {
	out, err := exec.CommandContext(context.Background(), "redis-server", "--version").Output()
	if err == nil {
		for field := range strings.FieldsSeq(string(out)) {
			if v, ok := strings.CutPrefix(field, "v="); ok {
				return "redis-server " + v
			}
		}
	}
	return "redis-server of unknown version"
}
