package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
)

// TestFollowedChangesAreOneDocument: what events -f writes as YAML is one list, whenever its
// elements come.
func TestFollowedChangesAreOneDocument(t *testing.T) {
	var b bytes.Buffer
	a := &app{out: &b, format: out.YAML}
	a.writeChanges([]tenure.Change{{ID: "1-0", Role: "a"}, {ID: "2-0", Role: "b"}})
	a.writeChanges([]tenure.Change{{ID: "3-0", Role: "c"}})
	var read []struct{ ID, Role string }
	require.NoError(t, yaml.Unmarshal(b.Bytes(), &read), b.String())
	require.Len(t, read, 3)
	require.Equal(t, "3-0", read[2].ID)
}
