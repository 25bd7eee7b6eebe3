package virtual

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
)

// play plagues one world, in virtual time (testing/synctest), and says what came of it. The
// last part of the run is calm: somebody must lead well before its end and stay, and what is kept
// in Redis must be right.
func play(t *testing.T, request Request) Result {
	t.Helper()
	profile, known := profileNamed(request.Profile)
	profile = profile.drawn(request.Seed)
	if !known {
		t.Fatalf("there is no profile %q", request.Profile)
	}
	for _, kind := range request.Quiet {
		if leaveOut[kind] == nil {
			t.Fatalf("there is no kind %q of network faults", kind)
		}
	}
	return playProfile(t, request, profile, nil)
}

// playProfile makes a run of a profile that need not be in the lists; meddle, unless nil, is
// called before the world starts.
func playProfile(t *testing.T, request Request, profile profile, meddle func(*cluster)) Result {
	t.Helper()
	result := Result{Request: request}
	length := cmp.Or(request.Length, profile.length, profile.pace.length)
	result.Calm = max(length-profile.pace.calm(), length/2)
	setup := profile.setup()
	var check *checker
	setup.report = func(wrong []problem) {
		for _, problem := range wrong[:min(len(wrong), 100)] {
			result.Wrong = append(result.Wrong, problem.text)
		}
		result.Violations = len(wrong)
		if len(wrong) > 0 {
			result.At = wrong[0].at
			result.Trace = lines(check.trace)
		}
	}
	result.Digest = inCluster(t, request.Seed, setup, func(c *cluster) {
		if profile.noInfo {
			c.redis.SetInfo("i0", false)
		}
		if meddle != nil {
			meddle(c)
		}
		c.start()
		nemesis := &nemesis{cluster: c, profile: profile, request: request}
		nemesis.run(result.Calm)
		if request.Until == 0 {
			c.settle(profile)
		}
		result.Strikes = nemesis.fell
		result.Figures = c.check.figures(nemesis)
		result.Trace = lines(c.net.Trace.Tail(150))
		check = c.check
	})
	return result
}

func lines(trace string) []string { return strings.Split(strings.TrimSuffix(trace, "\n"), "\n") }

// settle holds a world in which nothing happens any more against what must come of it.
func (c *cluster) settle(profile profile) {
	c.note("test", "calm", "", 0)
	settled := c.calm(profile)
	for range 30 {
		time.Sleep(c.pace.span(time.Second))
		if leader := c.leader(); leader != settled {
			c.check.fail("P12: in the calm the leader changed")
			break
		}
	}
	if profile.tasks {
		c.checkRegistry()
		c.check.tap.upToDate(c.redis.Now())
		c.ran()
		c.hear()
	}
	if c.operator != nil {
		c.operator.settle()
	}
}

// upToDate holds the last slots against P10: none is overdue.
func (t *tap) upToDate(now time.Time) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	for name, r := range t.tasks {
		task := t.c.tasks[name].task
		if late := now.UnixMilli() - r.last - r.every; late > task.work.Milliseconds()*2+2000 {
			t.c.failed("P10: the last slot of %s that was claimed is %d, now it is %d", name, r.last, now.UnixMilli())
		}
	}
}

// figures count what has happened.
func (c *checker) figures(n *nemesis) Figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := Figures{
		Simulated: c.cluster.net.Elapsed(), Events: c.cluster.net.Trace.Count(), Terms: c.terms, Changes: c.changes,
		Expired: c.endings[tenure.ErrExpired], Lost: c.endings[tenure.ErrLost], Resigned: c.endings[tenure.ErrResigned], Stopped: c.endings[tenure.ErrStopped],
		Accepted: c.resource.accepted, Refused: c.resource.refused, Faults: map[string]int64{}, Network: map[string]int64{},
		Beats: c.tap.beaten, Joined: c.tap.joined, Swept: c.tap.swept, Claims: c.tap.claims, Reruns: c.tap.reruns,
		Triggered: c.tap.triggered, Answers: c.asked.answers,
	}
	if c.cluster.setup.calm {
		f.Crash, f.Handover = c.failover.crash, c.failover.handover
	}
	for _, strike := range n.fell {
		if !strike.Out {
			f.Faults[strike.Fault]++
		}
	}
	for what, count := range c.cluster.net.Trace.Kinds() {
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
