package telemetry_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/telemetry"
)

// TestPageListsTheMetrics: docs/metrics.md has the table of metrics. TENURE_UPDATE=1 writes it.
func TestPageListsTheMetrics(t *testing.T) {
	const path, begin, end = "../../docs/metrics.md", "<!-- metrics -->\n", "<!-- end of metrics -->"
	var table strings.Builder
	table.WriteString("| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n")
	kinds := map[telemetry.Kind]string{telemetry.Gauge: "gauge", telemetry.Counter: "counter", telemetry.Histogram: "histogram"}
	for _, m := range telemetry.Metrics {
		labels := strings.Join(m.Labels, ", ")
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", m.Name, kinds[m.Kind], labels, m.Help)
	}
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	want := before + begin + table.String() + end + after
	if os.Getenv("TENURE_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(page), "TENURE_UPDATE=1 go test ./internal/telemetry writes the table")
}

// TestTableIsWellFormed: names are unique, and histograms have buckets that grow.
func TestTableIsWellFormed(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range telemetry.Metrics {
		require.False(t, names[m.Name], m.Name)
		names[m.Name] = true
		require.NotEmpty(t, m.Unit, m.Name)
		require.Equal(t, m.Kind == telemetry.Counter, strings.HasSuffix(m.Name, "_total"), m.Name)
		require.Equal(t, m.Kind == telemetry.Histogram, len(m.Buckets) > 0, m.Name)
		for i := 1; i < len(m.Buckets); i++ {
			require.Greater(t, m.Buckets[i], m.Buckets[i-1], m.Name)
		}
	}
}
