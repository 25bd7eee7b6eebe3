package redisstore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// declaration is one `local` of a prelude. Redis runs a script from its first line at each call: a
// function that it does not need is made in vain.
type declaration struct {
	text  string
	names []string
	words map[string]bool // in the text, comments left out
}

// heads are the forms in which a declaration begins: it ends before the next one.
var heads = regexp.MustCompile(`(?m)^local (?:function )?(\w+(?:, \w+)*)`)

// inFirstColumn is a line of a prelude that begins, or ends, a declaration.
var inFirstColumn = regexp.MustCompile(`^(local |end$|--|$|\s)`)

// declarations are those of a prelude, in their order.
func declarations(prelude string) (all []declaration, err error) {
	for line := range strings.Lines(prelude) {
		if !inFirstColumn.MatchString(strings.TrimSuffix(line, "\n")) {
			return nil, fmt.Errorf("tenure: scripts.lua: a prelude declares locals and nothing else: %q", line)
		}
	}
	found := heads.FindAllStringSubmatchIndex(prelude, -1)
	for i, at := range found {
		end := len(prelude)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		text := prelude[at[0]:end]
		all = append(all, declaration{text: text, names: strings.Split(prelude[at[2]:at[3]], ", "), words: wordsOf(text)})
	}
	return all, nil
}

// before is what stands before the body of a script: its shortcuts, each behind what it needs of
// the declarations, and what the body needs beside that. Whoever is answered by a shortcut does not
// pay for what stands behind it.
func before(all []declaration, shortcuts []string, body string) string {
	var text strings.Builder
	made := make([]bool, len(all))
	for _, shortcut := range shortcuts {
		text.WriteString(needed(all, made, shortcut) + shortcut)
	}
	return text.String() + needed(all, made, body)
}

// needed is what code needs of declarations that were not made before it, in their order: what it
// names, and what that names. They are made then.
func needed(all []declaration, made []bool, code string) string {
	words := wordsOf(code)
	var parts []string
	for i, d := range slices.Backward(all) { // what a declaration names stands before it
		if made[i] || !slices.ContainsFunc(d.names, func(name string) bool { return words[name] }) {
			continue
		}
		made[i] = true
		parts = append(parts, d.text)
		for word := range d.words {
			words[word] = true
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

var word = regexp.MustCompile(`\w+`)

// wordsOf are the words of Lua code, its texts included. One too many costs a declaration in vain.
func wordsOf(code string) map[string]bool {
	words := make(map[string]bool)
	for line := range strings.Lines(code) {
		if before, _, has := strings.Cut(line, "--"); has && strings.Count(before, "'")%2 == 0 {
			line = before // a comment
		}
		for _, found := range word.FindAllString(line, -1) {
			words[found] = true
		}
	}
	return words
}
