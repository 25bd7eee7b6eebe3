package main

import (
	"regexp"
	"strings"
)

// luaSwaps are the operators of Lua that stand for each other. The longer ones come first.
var luaSwaps = []struct {
	op     string
	others []string
}{
	{"<=", []string{"<", ">"}}, {">=", []string{">", "<"}}, {"==", []string{"~="}}, {"~=", []string{"=="}},
	{"<", []string{"<=", ">="}}, {">", []string{">=", "<="}},
	{" and ", []string{" or "}}, {" or ", []string{" and "}}, {" + ", []string{" - "}}, {" - ", []string{" + "}},
	{" * ", []string{" / "}}, {" / ", []string{" * "}}, {"not ", []string{""}},
	{"math.max", []string{"math.min"}}, {"math.min", []string{"math.max"}}, {"true", []string{"false"}}, {"false", []string{"true"}},
}

var (
	luaNumber = regexp.MustCompile(`^\d+\b`)
	luaTest   = regexp.MustCompile(`\b(?:if|elseif) (.*?) then`)
	luaCall   = regexp.MustCompile(`^\s*((?:call|note|publish|dirty|redis\.pcall)\(.*\))\s*$`)
	luaAssign = regexp.MustCompile(`^\s*([a-z_.]+(?:, [a-z_.]+)*)( = )`)
)

// luaMutants lists what can be broken in the sections of a Lua file that are chosen. Strings and
// comments are left alone, and so is the order of a statement's parts: it works on the text, line
// by line.
func luaMutants(file string, source []byte, chosen func(section string) bool) []mutant {
	var mutants []mutant
	section, offset := "", 0
	for line := range strings.Lines(string(source)) {
		at := offset
		offset += len(line)
		if name, is := strings.CutPrefix(line, "--@ "); is {
			section = strings.TrimSpace(name)
			continue
		}
		if section == "" || !chosen(section) {
			continue
		}
		add := func(from, to int, text string) {
			mutants = append(mutants, newMutant(file, section, source, at+from, at+to, text))
		}
		code := blank(line)
		for i := range code {
			for _, swap := range luaSwaps {
				if strings.HasPrefix(code[i:], swap.op) && !inWord(code, i, swap.op) && !partOfLonger(code, i, swap.op) {
					for _, other := range swap.others {
						add(i, i+len(swap.op), other)
					}
				}
			}
			if number := luaNumber.FindString(code[i:]); number != "" && !inWord(code, i, number) {
				add(i, i+len(number), "("+number+" + 1)")
				if number != "0" {
					add(i, i+len(number), "("+number+" - 1)")
				}
			}
		}
		if found := luaTest.FindStringSubmatchIndex(code); found != nil {
			cond := line[found[2]:found[3]]
			add(found[2], found[3], "("+cond+") and false")
			add(found[2], found[3], "("+cond+") or true")
		}
		if found := luaCall.FindStringSubmatchIndex(code); found != nil {
			add(found[2], found[3], "")
		}
		if found := luaAssign.FindStringSubmatchIndex(code); found != nil && !strings.HasSuffix(strings.TrimSpace(code), "{") {
			add(found[2], found[3], "local _"+strings.Repeat(", _", strings.Count(line[found[2]:found[3]], ",")))
		}
	}
	return mutants
}

// blank is a line with its strings and its comment blanked out.
func blank(line string) string {
	out := []byte(line)
	quoted := byte(0)
	for i := range out {
		switch c := line[i]; {
		case quoted != 0:
			if c == quoted && line[i-1] != '\\' {
				quoted = 0
			}
			out[i] = '~'
		case c == '\'' || c == '"':
			quoted, out[i] = c, '~'
		case c == '-' && strings.HasPrefix(line[i:], "--"):
			for j := i; j < len(out); j++ {
				out[j] = ' '
			}
			return string(out)
		}
	}
	return string(out)
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// inWord reports whether what stands at i is a part of a longer name or number.
func inWord(code string, i int, op string) bool {
	end := i + len(op)
	return isWord(code[i]) && i > 0 && (isWord(code[i-1]) || code[i-1] == '.') || isWord(op[len(op)-1]) && end < len(code) && isWord(code[end])
}

// partOfLonger reports whether an operator of one character is half of one of two, or stands for a
// blanked-out text.
func partOfLonger(code string, i int, op string) bool {
	switch op {
	case "<", ">":
		return i+1 < len(code) && code[i+1] == '='
	case "==", "~=":
		return i > 0 && (code[i-1] == '~' || code[i-1] == '=')
	}
	return false
}
