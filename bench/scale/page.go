//go:build unix

package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// page is what was measured.
type page struct {
	commit    string
	took      time.Duration
	tables    []*table
	constants constants
}

// table is a list of figures, beside what was to be reached.
type table struct {
	title, text string
	rows        [][3]string
}

func (p *page) table(title, text string) *table {
	t := &table{title: title, text: text}
	p.tables = append(p.tables, t)
	return t
}

func (t *table) add(what, format, aim string, value any) {
	t.rows = append(t.rows, [3]string{what, fmt.Sprintf(format, value), aim})
}

// measured is the block of what was measured.
func (p *page) measured() string {
	var b strings.Builder
	for _, t := range p.tables {
		fmt.Fprintf(&b, "### %s\n\n%s\n\n|  | figure | aim |\n|---|---:|---:|\n", t.title, t.text)
		for _, row := range t.rows {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", row[0], row[1], row[2])
		}
		b.WriteString("\n")
	}
	b.WriteString("### Constants\n\nWhat the next section reckons with.\n\n| constant | value | unit |\n|---|---:|---|\n")
	for c := range constantCount {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", constantNames[c].name, number(p.constants[c]), constantNames[c].unit)
	}
	fmt.Fprintf(&b, "\nCommit %s, %s, %d processors, %s/%s, %s, go-redis %s, on loopback, Redis and all instances on the one machine; the whole took %v.\n",
		p.commit, runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, redisVersion(), moduleVersion("github.com/redis/go-redis/v9"), p.took.Round(time.Second))
	return b.String()
}

// number has three digits that count.
func number(value float64) string {
	text := strconv.FormatFloat(value, 'g', 3, 64)
	value, _ = strconv.ParseFloat(text, 64) // it was written the line above
	return strconv.FormatFloat(value, 'f', -1, 64)
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func redisVersion() string {
	for field := range strings.FieldsSeq(redistest.Version()) {
		if version, ok := strings.CutPrefix(field, "v="); ok {
			return "redis-server " + version
		}
	}
	return redistest.Version()
}

func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, module := range info.Deps {
			if module.Path == path {
				return module.Version
			}
		}
	}
	return "–"
}

const (
	blockMeasured = "scale"
	blockDerived  = "scale, derived"
	blockEnd      = "<!-- end of figures -->"
)

// write replaces the blocks of a page.
func write(path, measured, derived string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	page := string(text)
	for _, block := range []struct{ name, text string }{{blockMeasured, measured}, {blockDerived, derived}} {
		if page, err = replaced(page, block.name, block.text); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// block finds what stands between the marks of a block.
func block(page, name string) (from, to int, err error) {
	begin := "<!-- figures: " + name + " -->\n"
	from = strings.Index(page, begin)
	if from < 0 {
		return 0, 0, fmt.Errorf("no block for %s", name)
	}
	from += len(begin)
	length := strings.Index(page[from:], blockEnd)
	if length < 0 {
		return 0, 0, fmt.Errorf("the block for %s has no end", name)
	}
	return from, from + length, nil
}

func replaced(page, name, text string) (string, error) {
	from, to, err := block(page, name)
	if err != nil {
		return "", err
	}
	return page[:from] + "\n" + strings.TrimSpace(text) + "\n\n" + page[to:], nil
}
