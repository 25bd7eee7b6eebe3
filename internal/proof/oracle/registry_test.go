package oracle

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPagesAreTheList: page by page nobody is listed twice and nobody is left out, however many
// were heard at the same instant.
func TestPagesAreTheList(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		registry := NewRegistry()
		for i := range r.IntN(30) {
			registry.Beats[fmt.Sprint("i", i)] = 1000 + r.Int64N(6)
		}
		most := 1 + r.IntN(4)
		var all []string
		from, skip := int64(0), int64(0)
		for {
			ids, next, past := registry.Page(2000, 10, from, skip, most)
			all = append(all, ids...)
			if past == 0 {
				break
			}
			from, skip = next, past
		}
		require.Equal(t, registry.Look(2000, 10), all, seed)
	}
}
