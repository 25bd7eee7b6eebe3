package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// mutant is one small mistake: a piece of one file that becomes another.
type mutant struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Scope  string `json:"scope"`  // the function, or the section of a script
	Text   string `json:"text"`   // the line
	Change string `json:"change"` // what becomes what, and which time it stands there if there are several

	source   []byte
	from, to int
	text     string
}

func newMutant(file, scope string, source []byte, from, to int, text string) mutant {
	start := bytes.LastIndexByte(source[:from], '\n') + 1
	end := from
	if i := bytes.IndexByte(source[from:], '\n'); i >= 0 {
		end += i
	}
	old := string(source[from:to])
	m := mutant{
		File: file, Scope: scope, Line: bytes.Count(source[:from], []byte("\n")) + 1, Text: squeezed(string(source[start:end])),
		Change: fmt.Sprintf("%s -> %s", squeezed(old), squeezed(text)), source: source, from: from, to: to, text: text,
	}
	if text == "" {
		m.Change = squeezed(old) + " removed"
	}
	if before := strings.Count(string(source[start:from]), old); before > 0 && len(old) < 12 {
		m.Change += fmt.Sprintf(" #%d", before+1)
	}
	return m
}

// broken is the file with the mistake in it.
func (m mutant) broken() []byte {
	return slices.Concat(m.source[:m.from], []byte(m.text), m.source[m.to:])
}

func (m mutant) key() string { return strings.Join([]string{m.File, m.Scope, m.Text, m.Change}, "\n") }

//go:embed equivalent.txt
var equivalentText string

// equivalents are the mutants that nobody can tell from the product, with the reason. An entry has
// five lines: file, function or section, the line, the change, the reason; a blank line stands
// between two.
func equivalents() (map[string]string, error) {
	known := map[string]string{}
	for entry := range strings.SplitSeq(equivalentText, "\n\n") {
		var lines []string
		for line := range strings.Lines(entry) {
			if !strings.HasPrefix(line, "#") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		text := strings.TrimSpace(strings.Join(lines, "\n"))
		if text == "" {
			continue
		}
		if strings.Count(text, "\n") != 4 {
			return nil, fmt.Errorf("equivalent.txt: an entry has five lines, not %q", text)
		}
		end := strings.LastIndexByte(text, '\n')
		known[text[:end]] = text[end+1:]
	}
	return known, nil
}
