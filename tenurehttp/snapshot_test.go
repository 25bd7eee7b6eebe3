package tenurehttp

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestChangedSinceAListing: few instances are read again, each once; all are, if it is not known
// which have changed.
func TestChangedSinceAListing(t *testing.T) {
	last := 0
	log := manyChanges(&last, 10)
	for n := range log {
		log[n].InstanceID = fmt.Sprint("i", n/2)
	}
	for _, tt := range []struct {
		position string
		ids      []string
		few      bool
	}{
		{"10-0", nil, true},
		{"8-0", []string{"i4"}, true},
		{"3-0", []string{"i1", "i2", "i3", "i4"}, true},
		{"", []string{"i0", "i1", "i2", "i3", "i4"}, true},
		{"0-5", nil, false}, // what came between that and the first is gone
		{"11-0", nil, false},
	} {
		ids, few := (&listing{position: tt.position}).changed(log)
		require.Equal(t, tt.few, few, tt.position)
		require.Equal(t, tt.ids, ids, tt.position)
	}
	_, few := (&listing{}).changed(nil)
	require.True(t, few)
	many := manyChanges(&last, 3*maxNamed)
	for n := range many {
		many[n].InstanceID = fmt.Sprint("i", n%maxNamed)
	}
	ids, few := (&listing{position: "10-0"}).changed(append(log, many...))
	require.True(t, few, "as many as may be, each three times")
	require.Len(t, ids, maxNamed)
	many[0].InstanceID = "another"
	many[1].InstanceID = "and another"
	_, few = (&listing{position: "10-0"}).changed(append(log, many...))
	require.False(t, few)
}

// TestAged: what is said of a role is as of now, and nothing of it turns into something else by
// that.
func TestAged(t *testing.T) {
	a := age{passed: 10 * time.Second}
	for _, tt := range []struct{ was, is time.Duration }{{30 * time.Second, 20 * time.Second}, {5 * time.Second, 0}, {0, 0}, {-1, -1}} {
		leader := tenure.LeaderInfo{Remaining: tt.was}
		require.Equal(t, tt.is, aged(&leader, a).Remaining)
		require.Equal(t, tt.was, leader.Remaining, "others read it too")
	}
	require.Nil(t, aged(nil, a))
	status := agedStatus(tenure.RoleStatus{For: time.Minute, Wait: 5 * time.Second}, a)
	require.Equal(t, 70*time.Second, status.For)
	require.Zero(t, status.Wait)
	require.Zero(t, agedStatus(tenure.RoleStatus{}, a).For, "it is not known since when")
	require.Equal(t, 15*time.Second, agedStatus(tenure.RoleStatus{Wait: 25 * time.Second}, a).Wait)
}
