package telemetry

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"strings"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/hook"
	"github.com/tenure-go/tenure/internal/store"
)

// endReasons are why a term may end, waitReasons why one does not begin, and runStates how a run
// may end here: their series are there from the start, with 0.
var (
	endReasons  = []string{"expired", "lost", "failed", "resigned", "transferred", "stopped"}
	waitReasons = []tenure.WaitReason{
		tenure.WaitLease, tenure.WaitForeign, tenure.WaitEmpty, tenure.WaitYoung, tenure.WaitHold, tenure.WaitVanished, tenure.WaitReserved,
		tenure.WaitYield, tenure.WaitPenalty, tenure.WaitSilence, tenure.WaitUnhealthy, tenure.WaitIneligible, tenure.WaitDraining,
	}
	runStates = []tenure.RunState{tenure.RunSucceeded, tenure.RunFailed, tenure.RunAbandoned, tenure.RunCanceled, tenure.RunInterrupted}
)

// Collect emits every gauge and counter as it is now. It asks Redis for the tasks if this process
// leads a role, and for the health of the cluster if that is the default one; what has no answer is
// left out.
func (s *Source) Collect(ctx context.Context, emit Emit) {
	names := hook.TaskNames(s.c)
	s.forget(names)
	totals := s.totals()
	electors := s.c.Roles()
	leads := make(map[string]bool)
	s.mu.Lock()
	unread, up := maps.Clone(s.unread), len(electors) > 0 || !s.unbeaten
	s.mu.Unlock()
	inFlight, missing := 0, map[string]bool{"info": false, "publish": false, "subscribe": false, "scripts": false}
	for _, e := range electors {
		status := e.Status()
		leads[e.Role()] = e.IsLeader()
		s.election(e, status, totals, emit)
		up = up && answers(status, hook.ElectionDown(e))
		inFlight += status.CallsInFlight
		refusals(status, unread[e.Role()], missing)
	}
	emit(Draining, truth(s.c.IsDraining()))
	emit(RedisUp, truth(up))
	emit(CallsInFlight, float64(inFlight))
	emit(Hearing, truth(s.c.Elector().Status().Subscription.Active))
	s.registry(ctx, leads[s.c.Elector().Role()], emit)
	s.ofTasks(ctx, names, leads, totals, emit)
	s.mu.Lock()
	missing["scripts"] = missing["scripts"] || time.Since(s.refused) < refusalCounts
	s.mu.Unlock()
	for right, refused := range missing {
		emit(RightsMissing, truth(refused), right)
	}
	for _, m := range []*Metric{ClockSteps, InstancesRemoved, EventsDropped} {
		totals[series{m, ""}] += 0
	}
	for of, value := range totals {
		if len(of.metric.Labels) == 0 {
			emit(of.metric, value)
			continue
		}
		emit(of.metric, value, strings.Split(of.labels, between)...)
	}
	emit(BuildInfo, 1, version(), runtime.Version())
}

// answers reports whether Redis gives an election usable answers. down says that none came to its
// requests: the error of a health check hides that in the status. An error of Redis may be there
// without it, of a release. A key that holds what it must not keeps one role from being led, and
// says nothing against Redis.
func answers(status tenure.ElectionStatus, down bool) bool {
	if e, is := store.AsType[*store.Error](status.Err); is && e.Spoilt {
		return true
	}
	return !down && (status.Err == nil || errors.Is(status.Err, tenure.ErrWorkFailed))
}

// forget ends the series of tasks that are not registered any more. What such a task counts last is
// collected once: the run that was on when it was unregistered ends after that.
func (s *Source) forget(registered []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, gone := make(map[string]bool, len(registered)), make(map[string]bool)
	for _, name := range registered {
		is[name], s.tasks[name] = true, false
	}
	for name, collected := range s.tasks {
		if !collected {
			s.tasks[name] = !is[name]
			continue
		}
		gone[name] = true
	}
	s.end(gone)
}

// end ends the series of tasks. mu is held.
func (s *Source) end(gone map[string]bool) {
	if len(gone) == 0 {
		return
	}
	for name := range gone {
		delete(s.tasks, name)
		delete(s.timed, name)
		delete(s.hung, name)
		s.sink.Forget(name)
	}
	maps.DeleteFunc(s.counters, func(of series, _ float64) bool {
		task, _, _ := strings.Cut(of.labels, between)
		return of.metric.ofTask() && gone[task]
	})
}

// totals are the counters as they are, with the time that a gap without a leader has lasted so far.
// What was shown of that is counted: the event that ends the gap may be heard late and be of a time
// before, and a counter never goes down.
func (s *Source) totals() map[series]float64 {
	now := time.Now()
	ended, led := s.known()
	s.mu.Lock()
	defer s.mu.Unlock()
	for role, last := range s.unled {
		end, over := ended[role]
		if !over {
			end = now
		}
		if !last.led || !led[role] {
			s.counters[series{Unowned, role}] += max(end.Sub(last.since).Seconds(), 0)
		}
		if s.unled[role] = (gap{now, led[role]}); over {
			delete(s.unled, role)
		}
	}
	totals := make(map[series]float64, len(s.counters))
	for of, value := range s.counters {
		if of.metric == Unowned {
			of.labels = RoleLabel(of.labels)
		}
		totals[of] += value
	}
	return totals
}

// known is what elections say of themselves, of which events may have been dropped. ended: this
// process takes part no more, and since when, so that it hears of no leader. led: somebody leads.
func (s *Source) known() (ended map[string]time.Time, led map[string]bool) {
	ended, led = make(map[string]time.Time), make(map[string]bool)
	for _, e := range s.c.Roles() {
		if at, is := hook.ElectionEnded(e); is {
			ended[e.Role()] = at
		}
		led[e.Role()] = e.Status().Leader != ""
	}
	return ended, led
}

func (s *Source) election(e *tenure.Elector, status tenure.ElectionStatus, totals map[series]float64, emit Emit) {
	label := RoleLabel(e.Role())
	emit(Leader, truth(e.IsLeader()), label)
	emit(LeaseTTL, e.Guarantees().LeaseTTL.Seconds(), label)
	remaining, token := 0.0, status.LeaderToken
	if status.State == tenure.ElectionLeading {
		remaining, token = max(time.Until(status.Deadline).Seconds(), 0), status.Token
	}
	emit(LeaseRemaining, remaining, label)
	emit(TermToken, float64(token), label)
	for _, reason := range waitReasons {
		emit(Waiting, truth(status.Waiting == reason), label, string(reason))
	}
	totals[series{Unowned, label}] += 0
	for _, reason := range endReasons {
		totals[series{LeadershipChanges, label + between + reason}] += 0
	}
}

// lacksRight reports whether an error is that of a right that is missing. Somebody has to fix a
// wrong password too, or a key of something else, but no right helps there.
func lacksRight(err error) bool {
	e, is := store.AsType[*store.Error](err)
	return is && e.Refused
}

// refusals notes which rights an election lacks. unread says that it was refused INFO.
func refusals(status tenure.ElectionStatus, unread bool, missing map[string]bool) {
	if lacksRight(status.Err) {
		missing["scripts"] = true
	}
	if unread && !status.HistoryWitness {
		missing["info"] = true
	}
	if hints := status.Subscription; lacksRight(hints.Err) {
		if hints.Active {
			missing["publish"] = true
		} else {
			missing["subscribe"] = true
		}
	}
}

// registry emits the age of the heartbeat, and what only the leader of the default role knows.
func (s *Source) registry(ctx context.Context, leads bool, emit Emit) {
	s.mu.Lock()
	counts, held, till, beaten := s.counts, s.held, s.heldTill, s.beaten
	s.mu.Unlock()
	emit(HeartbeatAge, max(time.Since(beaten).Seconds(), 0))
	if !leads {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readBound)
	defer cancel()
	if !time.Now().Before(till) {
		held = 0
	}
	if status, err := s.c.Registry().Status(ctx); err == nil {
		emit(ClusterHealthy, truth(status.Healthy))
		held = max(held, status.Held) // a hold that another leader has begun
	}
	emit(SweepHeld, float64(held))
	if counts == nil {
		return // it has not counted yet
	}
	for state, n := range map[tenure.InstanceState]int{
		tenure.InstanceActive: counts.Active, tenure.InstanceJoining: counts.Joining, tenure.InstanceDraining: counts.Draining,
		tenure.InstanceDrifted: counts.Drifted, tenure.InstanceDown: counts.Down, tenure.InstanceUnknown: counts.Unknown,
	} {
		emit(Instances, float64(n), string(state))
	}
}

// ofTasks emits what the leader of a role knows of its tasks. That a run has failed for good, or
// hangs, is counted from 0 in every process: what a leader finds abandoned as its term begins, or
// what hangs before it is scraped, would else be there from the first scrape on, and no alert on an
// increase would see it.
func (s *Source) ofTasks(ctx context.Context, registered []string, leads map[string]bool, totals map[series]float64, emit Emit) {
	for _, name := range registered {
		for _, state := range []tenure.RunState{tenure.RunFailed, tenure.RunAbandoned} {
			totals[series{TaskRuns, name + between + string(state)}] += 0
		}
		totals[series{TaskOverrun, name}] += 0
	}
	if !anyOf(leads) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readBound)
	defer cancel()
	tasks, err := s.c.Tasks().List(ctx)
	s.noteRefusal(err) // of the command that lists their names, which is no script
	if err != nil && !errors.Is(err, tenure.ErrTruncated) {
		return
	}
	for _, task := range tasks {
		if !task.Known || !leads[task.Role] {
			continue
		}
		standsStill := task.Err != nil && !task.Paused // of which no slot may be known
		emit(TaskOverdue, truth(task.Overdue || standsStill), task.Name)
		if standsStill && task.Token == 0 {
			continue // its record cannot be read, or there is none: it says nothing
		}
		emit(TaskRunning, truth(task.Running), task.Name)
		emit(TaskHanging, truth(task.Running && s.hangs(task.Last)), task.Name)
		emit(TaskPaused, truth(task.Paused), task.Name)
		emit(TaskFailures, float64(task.Failures), task.Name)
		success := 0.0
		if !task.LastSuccess.IsZero() {
			success = float64(task.LastSuccess.UnixMilli()) / 1000
		}
		emit(TaskLastSuccess, success, task.Name)
		for _, state := range runStates {
			totals[series{TaskRuns, task.Name + between + string(state)}] += 0
		}
		for _, m := range []*Metric{TaskRetries, TaskSkipped, TaskOverrun} {
			totals[series{m, task.Name}] += 0
		}
	}
}

func anyOf(flags map[string]bool) bool {
	for _, set := range flags {
		if set {
			return true
		}
	}
	return false
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
