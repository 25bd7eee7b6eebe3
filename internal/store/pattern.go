package store

import "fmt"

// Pattern is what a text is made of: at least one and at most so many of certain characters of
// ASCII. It matches what its regular expression matches. Go takes milliseconds to compile one that
// counts to a hundred, and whoever imports the library would wait for it.
type Pattern struct {
	class string // as in brackets of a regular expression
	most  int
	made  [256]bool
}

// pattern returns that of 1 to most characters of a class. A class has characters, ranges, and
// backslashes before characters that would mean something else.
func pattern(class string, most int) *Pattern {
	p := &Pattern{class: class, most: most}
	for i := 0; i < len(class); i++ {
		if class[i] == '\\' {
			i++
		}
		from, to := class[i], class[i]
		if i+2 < len(class) && class[i+1] == '-' {
			to = class[i+2]
			i += 2
		}
		for c := int(from); c <= int(to); c++ {
			p.made[c] = true
		}
	}
	return p
}

// MatchString reports whether all of text is as the pattern says.
func (p *Pattern) MatchString(text string) bool {
	if text == "" || len(text) > p.most {
		return false
	}
	for i := range len(text) {
		if !p.made[text[i]] {
			return false
		}
	}
	return true
}

// String is the regular expression.
func (p *Pattern) String() string { return fmt.Sprintf("^[%s]{1,%d}$", p.class, p.most) }
