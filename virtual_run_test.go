package tenure

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/virtual"
)

// virtualRun plagues one world, in virtual time (testing/synctest), and says what came of it. The
// last part of the run is calm: somebody must lead well before its end and stay, and what is kept
// in Redis must be right.
func virtualRun(t *testing.T, request virtual.Request) virtual.Result {
	t.Helper()
	profile, known := virtualProfileNamed(request.Profile)
	profile = profile.drawn(request.Seed)
	if !known {
		t.Fatalf("there is no profile %q", request.Profile)
	}
	for _, kind := range request.Quiet {
		if virtualQuiet[kind] == nil {
			t.Fatalf("there is no kind %q of network faults", kind)
		}
	}
	return virtualRunOf(t, request, profile, nil)
}

// virtualRunOf makes a run of a profile that need not be in the lists; meddle, unless nil, is
// called before the world starts.
func virtualRunOf(t *testing.T, request virtual.Request, profile virtualProfile, meddle func(*virtualWorld)) virtual.Result {
	t.Helper()
	result := virtual.Result{Request: request}
	length := orDefault(request.Length, profile.pace.length)
	result.Calm = max(length-profile.pace.calm(), length/2)
	setup := profile.setup()
	var check *virtualChecker
	setup.report = func(wrong []virtualProblem) {
		for _, problem := range wrong[:min(len(wrong), 100)] {
			result.Wrong = append(result.Wrong, problem.text)
		}
		result.Violations = len(wrong)
		if len(wrong) > 0 {
			result.At = wrong[0].at
			result.Trace = virtualLines(check.trace)
		}
	}
	result.Digest = inVirtualTime(t, request.Seed, setup, func(w *virtualWorld) {
		if profile.noInfo {
			w.redis.SetInfo("i0", false)
		}
		if meddle != nil {
			meddle(w)
		}
		w.start()
		nemesis := &virtualNemesis{virtualWorld: w, profile: profile, request: request}
		nemesis.run(result.Calm)
		if request.Until == 0 {
			w.settle(profile)
		}
		result.Strikes = nemesis.fell
		result.Figures = w.check.figures(nemesis)
		result.Trace = virtualLines(w.net.Trace.Tail(150))
		check = w.check
	})
	return result
}

func virtualLines(trace string) []string { return strings.Split(strings.TrimSuffix(trace, "\n"), "\n") }

// settle holds a world in which nothing happens any more against what must come of it.
func (w *virtualWorld) settle(profile virtualProfile) {
	w.note("test", "calm", "", 0)
	settled := w.calm(profile)
	for range 30 {
		time.Sleep(w.pace.span(time.Second))
		if leader := w.leader(); leader != settled {
			w.check.fail("P12: in the calm the leader changed")
			break
		}
	}
	if profile.tasks {
		w.checkRegistry()
		w.check.tap.upToDate(w.redis.Now())
		w.ran()
		w.hear()
	}
}

// upToDate holds the last slots against P10: none is overdue.
func (t *virtualTap) upToDate(now time.Time) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	for name, r := range t.tasks {
		task := t.c.tasks[name].virtualTask
		if late := now.UnixMilli() - r.last - r.every; late > task.work.Milliseconds()*2+2000 {
			t.c.failed("P10: the last slot of %s that was claimed is %d, now it is %d", name, r.last, now.UnixMilli())
		}
	}
}

// figures count what has happened.
func (c *virtualChecker) figures(n *virtualNemesis) virtual.Figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := virtual.Figures{
		Simulated: c.w.net.Elapsed(), Events: c.w.net.Trace.Count(), Terms: c.terms, Changes: c.changes,
		Expired: c.endings[errExpired], Lost: c.endings[ErrLost], Resigned: c.endings[ErrResigned], Stopped: c.endings[ErrStopped],
		Accepted: c.resource.accepted, Refused: c.resource.refused, Faults: map[string]int64{}, Network: map[string]int64{},
		Beats: c.tap.beaten, Joined: c.tap.joined, Swept: c.tap.swept, Claims: c.tap.claims, Reruns: c.tap.reruns,
	}
	if c.w.setup.calm {
		f.Crash, f.Handover = c.failover.crash, c.failover.handover
	}
	for _, strike := range n.fell {
		if !strike.Out {
			f.Faults[strike.Fault]++
		}
	}
	for what, count := range c.w.net.Trace.Kinds() {
		if strings.HasPrefix(what, "copy ") {
			what = "copied"
		}
		switch what {
		case "lost", "delayed", "copied", "cut", "held-lost", "held-sent", "dribbled", "torn", "refused":
			f.Network[what] += count
		}
	}
	for _, t := range c.tasks {
		f.Attempts += t.runs
		f.Interrupted += t.interrupted
	}
	return f
}
