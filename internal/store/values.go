package store

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Natural reads a number that tenure wrote, and 0 if the text is none.
func Natural(text string) int64 {
	if text == "" || len(text) > 16 { // an absent field is common, and the error of parsing it costs
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0
	}
	return int64(n)
}

// Milliseconds reads a duration that came from outside: nothing is longer than a century.
func Milliseconds(n int64) time.Duration {
	const century = 100 * 365 * 24 * int64(time.Hour/time.Millisecond)
	return time.Duration(min(max(n, -century), century)) * time.Millisecond
}

// Time is a time of Redis's clock; 0 is none.
func Time(ms int64) time.Time {
	const year10000 = 253402300800000 // no date from there on can be written as JSON
	if ms == 0 || ms >= year10000 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// StartTime is the start of a term, in Unix seconds. Anybody may have written it: what is no date
// is the zero time.
func StartTime(seconds int64) time.Time {
	return Time(min(seconds, 1<<50) * 1000)
}

// MaxTaskText is how many bytes of a text in the record of a task are kept, or read back.
const MaxTaskText = 1024

// TaskText is as much of a text as is kept, or read back.
func TaskText(text string) string { return cutText(text, MaxTaskText) }

// MaxRunError is how many bytes of an error the history of a task shows.
const MaxRunError = 120

// RunError is as much of an error as the history shows: all of it, or its beginning and an
// ellipsis. The text is what TaskText returns.
func RunError(text string) string {
	if len(text) <= MaxRunError {
		return text
	}
	last := MaxRunError - len("…")
	for last > 0 && !utf8.RuneStart(text[last]) {
		last--
	}
	return text[:last] + "…"
}

// cutText is a text without what is no UTF-8, and of so many bytes at most.
func cutText(text string, most int) string {
	text = strings.ToValidUTF8(text[:min(len(text), most)], "\uFFFD") // may be longer than what it replaces
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
