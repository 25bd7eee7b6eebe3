package store

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPattern: a pattern matches what its regular expression matches.
func TestPattern(t *testing.T) {
	for _, p := range []*Pattern{IDPattern, RolePattern, IncarnationPattern, MetricPattern, AddressPattern, HostPattern, VersionPattern} {
		t.Run(p.String(), func(t *testing.T) {
			expression := regexp.MustCompile(p.String())
			texts := []string{"", "a b", "a\n", "\n", "é", "a\x00", "\xff", strings.Repeat("a", p.most), strings.Repeat("a", p.most+1), strings.Repeat("é", p.most)}
			for c := range 256 {
				texts = append(texts, string([]byte{byte(c)}), string([]byte{'a', byte(c)}), string([]byte{byte(c), '9'}))
			}
			matched := 0
			for _, text := range texts {
				want := expression.MatchString(text)
				require.Equal(t, want, p.MatchString(text), "%q", text)
				if want {
					matched++
				}
			}
			require.Greater(t, matched, 3*62)
			require.Less(t, matched, len(texts)/2)
		})
	}
}
