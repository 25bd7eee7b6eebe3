package main

import (
	"slices"
	"strings"
	"testing"
)

const goSample = `package p

func (c *T) f(a, b int) {
	// a < b is left alone here
	if a < b && !c.ready {
		c.wake, c.back = min(a, 2), b
	}
	c.run("a < b")
}
`

func TestMutantsOfGo(t *testing.T) {
	mutants, err := goMutants("p.go", []byte(goSample))
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	for _, m := range mutants {
		changes = append(changes, m.Change)
		if _, err := goMutants("p.go", m.broken()); err != nil {
			t.Errorf("%s is no program: %v\n%s", m.Change, err, m.broken())
		}
	}
	for _, want := range []string{
		"{ -> { if true { return }", "a < b && !c.ready -> (a < b && !c.ready) && false", "a < b && !c.ready -> (a < b && !c.ready) || true",
		"&& -> ||", "< -> <=", "< -> >=", "! removed", "c.wake -> _", "c.back -> _", "min -> max", "2 -> (2 + 1)", "2 -> (2 - 1)", `c.run("a < b") removed`,
	} {
		if !slices.Contains(changes, want) {
			t.Errorf("no mutant %q in %q", want, changes)
		}
	}
	if len(changes) != 13 {
		t.Errorf("%d mutants: %q", len(changes), changes)
	}
}

const luaSample = `
--@ prelude common
local limit = 7 -- 8 is no limit
--@ acquire
if now <= limit and not held then return answer('a < 1', now) end -- a < b
term.ends = math.max(now + 1, 0)
call('SET', key, 'x')
--@ renew
call('GET', key)
`

func TestMutantsOfLua(t *testing.T) {
	var changes []string
	for _, m := range luaMutants("s.lua", []byte(luaSample), sections("prelude common", "acquire")) {
		changes = append(changes, m.Change)
	}
	want := []string{
		"7 -> (7 + 1)", "7 -> (7 - 1)",
		"<= -> <", "<= -> >", "and -> or", "not removed", "now <= limit and not held -> (now <= limit and not held) and false",
		"now <= limit and not held -> (now <= limit and not held) or true",
		"math.max -> math.min", "+ -> -", "1 -> (1 + 1)", "1 -> (1 - 1)", "0 -> (0 + 1)", "term.ends -> local _", "call('SET', key, 'x') removed",
	}
	if !slices.Equal(changes, want) {
		t.Errorf("mutants\n%s\nwant\n%s", strings.Join(changes, "\n"), strings.Join(want, "\n"))
	}
}

// TestEquivalents: the list can be read.
func TestEquivalents(t *testing.T) {
	known, err := equivalents()
	if err != nil || len(known) == 0 {
		t.Fatal(known, err)
	}
	for key, reason := range known {
		if strings.Count(key, "\n") != 3 || reason == "" {
			t.Errorf("%q: %q", key, reason)
		}
	}
}
