//go:build unix

package scenario

import (
	"strings"
	"testing"
)

// A check that cannot fail shows nothing.
func TestContradictions(t *testing.T) {
	for name, tc := range map[string]struct {
		beliefs []belief
		want    string
	}{
		"one after the other":     {[]belief{{"b", 2, 20, 30}, {"a", 1, 0, 10}, {"a", 3, 40, 50}}, ""},
		"seen once, meets nobody": {[]belief{{"a", 1, 10, 9}, {"b", 2, 11, 20}}, ""},
		"two at once":             {[]belief{{"a", 1, 0, 10}, {"b", 2, 5, 20}}, "P1"},
		"one within another":      {[]belief{{"a", 1, 0, 10}, {"b", 2, 5, 6}}, "P1"},
		"long before the next":    {[]belief{{"a", 1, 0, 50}, {"b", 2, 60, 70}, {"c", 3, 65, 66}}, "P1"},
		"one token twice":         {[]belief{{"a", 1, 0, 10}, {"b", 1, 20, 30}}, "P2"},
		"token goes back":         {[]belief{{"a", 2, 0, 10}, {"b", 1, 20, 30}}, "P2"},
		"without tokens":          {[]belief{{"a", 2, 0, 10}, {"x", 0, 20, 30}, {"b", 3, 40, 50}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(contradictions(tc.beliefs), "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
