package tenure

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// tasksOfRole are the tasks of the default role of a coordinator that does not run.
func tasksOfRole(t *testing.T, opts Options) *roleTasks {
	t.Helper()
	c, err := NewStandalone(opts)
	require.NoError(t, err)
	return c.tasks.of("")
}

// TestTasksThatComeAndGo: they stay in the order of registration, also if one is replaced or taken
// out, and the loop hears of each change, once.
func TestTasksThatComeAndGo(t *testing.T) {
	s := tasksOfRole(t, Options{})
	require.False(t, s.any())
	told := 0
	task := func(name string) *registered { return &registered{Task: Task{Name: name}} }
	s.add(task("before"))
	require.True(t, s.any())
	s.whenAdded(func() { told++ })
	for _, name := range []string{"d", "a", "c", "b"} {
		s.add(task(name))
	}
	require.Equal(t, 4, told)
	names := func() (all []string) {
		for _, r := range s.known() {
			all = append(all, r.Name)
		}
		return all
	}
	require.Equal(t, []string{"before", "d", "a", "c", "b"}, names())
	require.Empty(t, s.changes(), "there is no loop")

	s.loops(true)
	heard := func() (all []string) {
		for _, c := range s.changes() {
			all = append(all, c.name+" "+strconv.FormatBool(c.now != nil))
		}
		return all
	}
	require.Equal(t, []string{"before true", "d true", "a true", "c true", "b true"}, heard())
	<-s.wake
	other := task("a")
	require.True(t, s.replace(s.find("a"), other))
	require.False(t, s.replace(task("a"), task("a")), "another one is there")
	require.Same(t, other, s.find("a"))
	require.Equal(t, []string{"before", "d", "a", "c", "b"}, names())
	require.Len(t, s.wake, 1)
	<-s.wake

	ended, there := s.remove("d")
	require.True(t, there)
	require.Len(t, s.wake, 1)
	_, there = s.remove("d")
	require.False(t, there)
	_, there = s.remove("nobody")
	require.False(t, there)
	require.Equal(t, []string{"a true", "d false"}, heard())
	require.Empty(t, heard())
	require.True(t, s.leaves("d"))
	require.Same(t, s, s.homes.get("d"), "the loop has it still")
	s.settle("d")
	<-ended
	require.False(t, s.leaves("d"))
	require.Nil(t, s.homes.get("d"))
	s.settle("d") // again

	s.add(task("late"))
	require.Equal(t, []string{"late true"}, heard())
	ended, _ = s.remove("late")
	s.settle("late")
	<-ended

	ended, _ = s.remove("c")
	s.loops(false)
	<-ended
	require.Nil(t, s.homes.get("c"))
	require.Empty(t, heard())
	ended, there = s.remove("b")
	require.True(t, there)
	require.Nil(t, ended, "no loop has it")
	require.Nil(t, s.homes.get("b"))
	require.Equal(t, []string{"before", "a"}, names())
}

// TestLoopThatMakesNoProgress: one turn may take ten seconds. A loop that does nothing, or does not
// run, is not stuck.
func TestLoopThatMakesNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasksOfRole(t, Options{})
		time.Sleep(time.Hour)
		require.NoError(t, s.stuck())
		s.since.Store(int64(readClock().Mono))
		s.working.Store(true)
		time.Sleep(10 * time.Second)
		require.NoError(t, s.stuck())
		time.Sleep(time.Nanosecond)
		require.ErrorContains(t, s.stuck(), "no progress for 10.0")
		s.working.Store(false)
		require.NoError(t, s.stuck())
	})
}

// TestWhatIsKeptOfRuns: what a task says, else what the scheduler does.
func TestWhatIsKeptOfRuns(t *testing.T) {
	s := tasksOfRole(t, Options{Tasks: TaskOptions{History: 7}, Election: ElectionOptions{LeaseTTL: time.Hour}})
	require.Equal(t, store.Keep(7), s.keeps(nil))
	require.Equal(t, store.Keep(7), s.keeps(&registered{}))
	require.Equal(t, store.Keep(1), s.keeps(&registered{Task: Task{History: 1}}))
	require.Equal(t, store.Keep(-1), s.keeps(&registered{Task: Task{History: -1}}))
	require.Equal(t, time.Hour+30*time.Second, s.grace)
	require.Equal(t, schedule.DefaultGrace, tasksOfRole(t, Options{}).grace)
}

// TestMemoriesOfTasksThatAreThere: as many as are registered are kept, and a thousand more.
func TestMemoriesOfTasksThatAreThere(t *testing.T) {
	s := tasksOfRole(t, Options{})
	for i := range 2 * maxMemories {
		s.add(&registered{Task: Task{Name: strconv.Itoa(i)}})
		s.ran(strconv.Itoa(i))
	}
	for i := range 1000 {
		s.ran("gone-" + strconv.Itoa(i))
	}
	require.Len(t, s.memory, 3000, "there is room for all")
	s.ran("gone-1000")
	require.Len(t, s.memory, 2001)
}
