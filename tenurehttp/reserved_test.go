package tenurehttp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestReservedRoleIsNoRole: a name whose keys are those of the default role is no role to ask for.
func TestReservedRoleIsNoRole(t *testing.T) {
	c, err := tenure.NewStandalone(tenure.Options{})
	require.NoError(t, err)
	h, err := New(c, Options{})
	require.NoError(t, err)
	defer h.Close()
	for _, role := range []string{"since", "term", "terms", "events"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/cluster/role?role="+role, nil))
		require.Equal(t, http.StatusBadRequest, w.Code, role)
	}
}
