package out

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// hostile has what a terminal may obey, or show in a way that misleads.
const hostile = "a\x1b[31m\x07\n\u009b2J\u202eb\u2028c\u200bd\U000e0041\x7f"

// TestPlain: a terminal shows what it may not obey.
func TestPlain(t *testing.T) {
	require.Equal(t, `a\x1b[31m\x07\x0a\x9b2J\u202eb\u2028c\u200bd\U000e0041\x7f`, Plain(hostile))
	require.Equal(t, `\xff\xfe`, Plain("\xff\xfe"))
	require.Equal(t, "Grüße, 世界 \ufffd", Plain("Grüße, 世界 \ufffd"))
}

// TestGridBelow: what belongs to the row above stands below its last cell, without cells of its
// own.
func TestGridBelow(t *testing.T) {
	g := Grid{Head: []string{"CHECK", "LEVEL", "FOUND"}}
	g.Add("pool", "", "too small")
	g.Below("fix: 4\x1b")
	g.Add("persistence", "warn\x1b", "")
	var b bytes.Buffer
	g.Write(&b, "")
	require.Equal(t, "CHECK        LEVEL     FOUND\npool         -         too small\n                       fix: 4\\x1b\npersistence  warn\\x1b  -\n", b.String())
}

// TestFormats: what programs read has every character, and none that a terminal obeys.
func TestFormats(t *testing.T) {
	value := []map[string]any{{"b": hostile, "a": "1", "c": []int{1, 2}, "d": []string{}, "e": "yes"}}
	for _, format := range []Format{JSON, Lines, YAML} {
		var b bytes.Buffer
		require.NoError(t, Value(&b, format, value))
		for _, r := range b.String() {
			require.True(t, r == '\n' || !Hostile(r), "%s: %U", format, r)
		}
		text := b.String()
		if format == Lines {
			require.Equal(t, 1, strings.Count(text, "\n"))
			text = "[" + text + "]"
		}
		var back []map[string]any
		if format != YAML {
			require.NoError(t, json.Unmarshal([]byte(text), &back))
			require.Equal(t, hostile, back[0]["b"])
		}
		if format == YAML {
			require.NoError(t, yaml.Unmarshal(b.Bytes(), &back))
			require.Equal(t, hostile, back[0]["b"])
			require.Equal(t, "1", back[0]["a"])
			require.Equal(t, "yes", back[0]["e"])
		}
		require.Contains(t, text, "31m")
	}
	for _, format := range Formats {
		read, err := ParseFormat(string(format))
		require.NoError(t, err)
		require.Equal(t, format, read)
		require.Equal(t, format == Table || format == Wide, read.Person())
	}
	_, err := ParseFormat("xml")
	require.Error(t, err)
}

// TestLines: one line an element, and one for what is no list.
func TestLines(t *testing.T) {
	for want, value := range map[string]any{"{\"a\":1}\n{\"a\":2}\n": []map[string]int{{"a": 1}, {"a": 2}}, "{\"a\":1}\n": map[string]int{"a": 1}, "": []int{}} {
		var b bytes.Buffer
		require.NoError(t, Value(&b, Lines, value))
		require.Equal(t, want, b.String())
	}
}

// closed takes nothing.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestWhatCannotBeWritten is an error in each format, and so is what is no JSON.
func TestWhatCannotBeWritten(t *testing.T) {
	for _, format := range []Format{JSON, Lines, YAML} {
		require.ErrorIs(t, Value(closed{}, format, []int{1}), io.ErrShortWrite, format)
		var b bytes.Buffer
		require.Error(t, Value(&b, format, func() {}), format)
		require.Empty(t, b.String())
	}
}

// TestAt: without the date if it is today's, of this year. It is the time of this machine, whatever
// zone a time comes in.
func TestAt(t *testing.T) {
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.FixedZone("of this machine", 13*60*60) // it is another day than in UTC
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.Local)
	for want, at := range map[string]time.Time{
		"-": {}, "00:00:00": now.Add(-12 * time.Hour), "23:59:59": now.Add(12*time.Hour - time.Second), "2026-03-03 23:59:59": now.Add(-12*time.Hour - time.Second),
		"2026-03-05 00:00:00": now.Add(12 * time.Hour), "2025-03-04 12:00:00": now.AddDate(-1, 0, 0),
	} {
		require.Equal(t, want, At(at, now))
		if !at.IsZero() {
			require.Equal(t, want, At(at.UTC(), now))
			require.Equal(t, want, At(at, now.UTC()))
		}
	}
	for role, name := range map[string]string{"": "default", "default": "role:default", "export": "export"} {
		require.Equal(t, name, Role(role))
		require.Equal(t, role, NamedRole(name), "it is found by what the tables call it")
	}
}

// TestYAMLOfWhatItHardlyTakes: names longer than a line of YAML may have, and characters that are
// none, keep nobody from the rest. The order stays.
func TestYAMLOfWhatItHardlyTakes(t *testing.T) {
	for _, text := range []string{strings.Repeat("k", 2000), "\ufffe", "\uffff", "a\ufffeb", "", "null", "1e3", "0x1", "~", "- a", "a: b", "\ufeff", " ", "é\u00a0", "<<", "\u202ea"} {
		var b bytes.Buffer
		require.NoError(t, Value(&b, YAML, map[string]any{text: []string{text}}), "%q", text)
		var back map[string][]string
		require.NoError(t, yaml.Unmarshal(b.Bytes(), &back), "%q", b.String())
		require.Equal(t, map[string][]string{text: {text}}, back)
	}
	var b bytes.Buffer
	require.NoError(t, Value(&b, YAML, struct {
		Z float64  `json:"z"`
		A *int     `json:"a"`
		N int64    `json:"n"`
		S []string `json:"s"`
		B bool     `json:"b"`
		L []string `json:"l"`
		M struct{} `json:"m"`
	}{Z: 1e300, N: 1795295029993, S: []string{"on", "No", "y", "1:20", "true", "one"}}))
	require.Equal(t, `z: 1e+300
a: null
"n": 1795295029993
s:
  - "on"
  - "No"
  - "y"
  - "1:20"
  - "true"
  - one
b: false
l: null
m: {}
`, b.String(), "what was a word, a number or a time in YAML 1.1 is a text")
}

// TestGrid: columns are aligned, cells are plain, and what is empty is a dash.
func TestGrid(t *testing.T) {
	g := Grid{Head: []string{"NAME", "STATE"}}
	g.Add("web-1", "active")
	g.Add("x\x1b", "")
	var b bytes.Buffer
	g.Write(&b, "nobody")
	require.Equal(t, "NAME   STATE\nweb-1  active\nx\\x1b  -\n", b.String())
	b.Reset()
	(&Grid{Head: []string{"NAME"}}).Write(&b, "nobody")
	require.Equal(t, "nobody\n", b.String())
}

// TestFor: two units, never below zero.
func TestFor(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0ms": -time.Second, "999ms": time.Second - 1, "1s": time.Second, "1m 0s": time.Minute, "59m 59s": time.Hour - 1, "1h 0m": time.Hour, "23h 59m": 24*time.Hour - 1,
		"1d 0h": 24 * time.Hour, "250ms": 250 * time.Millisecond, "59s": 59*time.Second + 999*time.Millisecond, "1m 14s": 74 * time.Second, "3h 12m": 192 * time.Minute,
		"2d 1h": 49 * time.Hour, "9d 23h": 10*24*time.Hour - 1,
	} {
		require.Equal(t, want, For(d))
	}
}
