// Package out writes what a command has to say: tables for people, JSON and YAML for programs.
package out

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain returns a text that a terminal shows and does not obey: control characters, among them
// escape sequences and line ends, what turns the direction of writing, and what is invalid UTF-8
// are spelled out, as in Go. Who may write to Redis may have written it.
func Plain(text string) string {
	hostile := func(r rune) bool { return r == utf8.RuneError || Hostile(r) }
	if strings.IndexFunc(text, hostile) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				fmt.Fprintf(&b, `\x%02x`, text[i])
			} else {
				b.WriteRune(r)
			}
		case r < 0x100 && Hostile(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff && Hostile(r): // with four digits the fifth would be a letter of its own
			fmt.Fprintf(&b, `\U%08x`, r)
		case Hostile(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Hostile reports whether a terminal may obey a character, or show it in a way that misleads.
func Hostile(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}
