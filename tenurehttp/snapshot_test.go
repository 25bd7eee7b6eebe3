package tenurehttp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
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

// TestOldAnswersAreStale, though no error is known: a load may be under way for long. Then that is
// why they are.
func TestOldAnswersAreStale(t *testing.T) {
	for passed, stale := range map[time.Duration]bool{0: false, staleAfter - time.Second: false, staleAfter + time.Second: true} {
		a := ageOf(view[int]{at: time.Now().Add(-passed)})
		require.Equal(t, stale, a.Stale, passed)
		require.Equal(t, map[bool]string{true: "redis has given no answer within 1s"}[stale], a.Error, passed)
	}
}

// TestOrderOfInstances: those that somebody should look at come first. The word of another program
// ranks as one that is not known.
func TestOrderOfInstances(t *testing.T) {
	var all []tenure.Instance
	for i, state := range []tenure.InstanceState{
		tenure.InstanceActive, "dead", tenure.InstanceDraining, tenure.InstanceDown, tenure.InstanceJoining, tenure.InstanceUnknown, tenure.InstanceDrifted, tenure.InstanceDown,
	} {
		all = append(all, tenure.Instance{ID: fmt.Sprint(i), State: state})
	}
	require.Equal(t, []int32{3, 7, 6, 1, 5, 4, 2, 0}, byRank(all))
}

// TestListingThatIsCut makes a snapshot that says so.
func TestListingThatIsCut(t *testing.T) {
	for _, cut := range []bool{false, true} {
		c, err := tenure.NewStandalone(tenure.Options{})
		require.NoError(t, err)
		s := survey{control: c.Control(), instances: newCell(func(context.Context) (*listing, error) { return &listing{truncated: cut}, nil })}
		n, err := s.take(t.Context())
		require.NoError(t, err)
		require.Equal(t, cut, n.truncated)
	}
}

// TestCellsThatNobodyNeeds are dropped: those of roles that nobody asks for any more, and those of
// tasks that are gone.
func TestCellsThatNobodyNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := tenure.NewStandalone(tenure.Options{})
		require.NoError(t, err)
		h, err := New(c, Options{})
		require.NoError(t, err)
		for i := range 20 {
			require.NotNil(t, h.roles.enter(fmt.Sprint("r", i), true))
			time.Sleep(2 * time.Second)
		}
		require.LessOrEqual(t, len(h.roles.cells), 6)
		for i := range 20 {
			status := tenure.TaskStatus{Name: fmt.Sprint("t", i)}
			require.NotNil(t, h.runs.of(&snapshot{tasks: []tenure.TaskStatus{status}}, status))
		}
		require.LessOrEqual(t, len(h.runs.cells), 2)
	})
}

// TestWhatIsKnownOfTheLeader counts for that very term of that instance; without an address for a
// second.
func TestWhatIsKnownOfTheLeader(t *testing.T) {
	is := tenure.LeaderInfo{InstanceID: "a", Token: 5, Address: "a:80"}
	now := time.Now()
	for _, tt := range []struct {
		known  *knownLeader
		counts bool
	}{
		{nil, false},
		{&knownLeader{is, now.Add(-time.Hour)}, true},
		{&knownLeader{tenure.LeaderInfo{InstanceID: "a", Token: 4, Address: "a:80"}, now}, false},
		{&knownLeader{tenure.LeaderInfo{InstanceID: "b", Token: 5, Address: "b:80"}, now}, false},
		{&knownLeader{tenure.LeaderInfo{InstanceID: "a", Token: 5}, now}, true},
		{&knownLeader{tenure.LeaderInfo{InstanceID: "a", Token: 5}, now.Add(-2 * fresh)}, false},
	} {
		require.Equal(t, tt.counts, tt.known.counts(is), tt.known)
	}
}

// TestPagesThatAreKept are few, and small, whatever somebody asks for.
func TestPagesThatAreKept(t *testing.T) {
	s := &snapshot{}
	for i := range 3 * maxPagesKept {
		_, err := s.page(pageQuery{limit: 1, offset: i})
		require.NoError(t, err)
	}
	require.Len(t, s.pages.pages, maxPagesKept)
	for name, q := range map[string]pageQuery{"query": {part: strings.Repeat("x", maxPageKept+1)}, "answer": {limit: 1}} {
		s := &snapshot{all: []tenure.Instance{{ID: strings.Repeat("a", maxPageKept)}}, sorted: []int32{0}}
		text, err := s.page(q)
		require.NoError(t, err)
		require.NotEmpty(t, text)
		require.Empty(t, s.pages.pages, name)
	}
}

// TestWholeSeconds are rounded up: what is switched off is 0, and nothing else is.
func TestWholeSeconds(t *testing.T) {
	for d, seconds := range map[time.Duration]int64{-time.Minute: 0, 0: 0, 1: 1, time.Second: 1, 1500 * time.Millisecond: 2} {
		require.Equal(t, seconds, whole(d), d)
	}
}
