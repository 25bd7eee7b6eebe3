package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/cron"
	"github.com/tenure-go/tenure/internal/schedule"
)

// job is a task that every process of a cluster has registered.
type job struct {
	policy schedule.Policy
	other  schedule.Policy // that of the other version of the program; its Schedule is nil if there is one version only
	takes  time.Duration   // longest of an attempt
	fails  float64         // share of the attempts
	asks   bool            // some that fail say when the next one comes, or that none does
}

// of is the policy of a process: two versions of a program may run side by side.
func (j *job) of(host uint8) *schedule.Policy {
	if host%2 == 1 && j.other.Schedule != nil {
		return &j.other
	}
	return &j.policy
}

// numJobs is how many tasks there are room for.
const numJobs = 10

// usualJobs are what the clusters of the listed profiles run: each policy, with a fixed interval
// and with the calendar.
var usualJobs = []job{
	newJob("all", schedule.Policy{Schedule: schedule.Every(10 * time.Minute), Missed: schedule.RunAll}, 40*time.Second),
	newJob("once", schedule.Policy{Schedule: schedule.Every(time.Hour), InitialDelay: 5 * time.Minute, RunOnElection: true}, 2*time.Minute),
	newJob("skip", schedule.Policy{Schedule: schedule.Every(25 * time.Second), Missed: schedule.SkipMissed}, 6*time.Second),
	newJob("daily", schedule.Policy{Schedule: mustParse("30 3 * * *"), Jitter: 10 * time.Minute}, 10*time.Minute),
	newJob("quick", schedule.Policy{Schedule: schedule.Every(2 * time.Minute), Missed: schedule.RunAll, MaxCatchUp: 3, Jitter: 30 * time.Second}, 2*time.Second),
	newJob("slow", schedule.Policy{Schedule: schedule.Every(7 * time.Minute), Overlap: schedule.OverlapQueue}, 15*time.Minute),
	flaky(newJob("flaky", schedule.Policy{Schedule: schedule.Every(20 * time.Minute), Attempts: 4, Backoff: 2 * time.Second, MaxBackoff: 10 * time.Second}, 5*time.Second), 0.5),
	flaky(newJob("fragile", schedule.Policy{Schedule: schedule.Every(15 * time.Minute), Abandoned: schedule.AbandonedFail}, time.Minute), 0.2),
	changing(newJob("changing", schedule.Policy{Schedule: schedule.Every(11 * time.Minute)}, 10*time.Second), schedule.Every(17*time.Minute)),
}

func newJob(name string, p schedule.Policy, takes time.Duration) job {
	p.Name = name
	p.Spec = schedule.Hash(name, fmt.Sprint(p.Schedule))
	orDefault(&p.Grace, schedule.DefaultGrace)
	orDefault(&p.Backoff, time.Second)
	orDefault(&p.MaxBackoff, time.Minute)
	p.Attempts = max(p.Attempts, 1)
	if p.MaxCatchUp == 0 {
		p.MaxCatchUp = schedule.DefaultMaxCatchUp
	}
	return job{policy: p, takes: takes}
}

func flaky(j job, share float64) job {
	j.fails = share
	return j
}

// changing has the other version of the program use another schedule.
func changing(j job, other schedule.Schedule) job {
	j.other = j.policy
	j.other.Schedule, j.other.Spec = other, schedule.Hash(j.policy.Name, "other", fmt.Sprint(other))
	return j
}

func mustParse(spec string) schedule.Schedule {
	parsed, err := cron.Parse(spec)
	if err != nil {
		panic(err) // it is a constant
	}
	return parsed
}

// drawJobs draws tasks whose periods suit a run of such a length: every policy meets every other.
func drawJobs(seed uint64, length time.Duration) (drawn []job) {
	d := dice{rand.New(rand.NewPCG(seed, 10))}
	least, most := 2*time.Second, 40*time.Second
	if length > time.Hour {
		least, most = 30*time.Second, time.Hour
	}
	for n := range 2 + d.IntN(4) {
		interval := d.duration(least, most)
		p := schedule.Policy{
			Schedule: schedule.Every(interval), Missed: schedule.Missed(d.IntN(3)), Overlap: schedule.Overlap(d.IntN(2)), Abandoned: schedule.Abandoned(d.IntN(2)),
			MaxCatchUp: 1 + d.IntN(20), RunOnElection: d.IntN(4) == 0, Attempts: 1 + d.IntN(4), Backoff: d.duration(100*time.Millisecond, interval),
			Grace: d.duration(interval/4, 4*interval),
		}
		p.MaxBackoff = p.Backoff * time.Duration(1+d.IntN(4))
		if d.IntN(3) == 0 {
			p.InitialDelay = d.duration(time.Second, interval*2)
		}
		if length > time.Hour && d.IntN(4) == 0 {
			p.Schedule = mustParse([]string{"*/5 * * * *", "7,11,23 * * * *", "0 */2 * * *"}[d.IntN(3)])
		}
		other := time.Duration(0)
		if d.IntN(4) == 0 {
			other = d.duration(least, most)
		}
		if d.IntN(2) == 0 { // less than the time between two slots
			gap := min(interval, 4*time.Minute)
			if other > 0 {
				gap = min(gap, other)
			}
			p.Jitter = d.duration(gap/100, gap*9/10)
		}
		j := newJob("t"+strconv.Itoa(n), p, d.duration(interval/100, interval*2))
		j.fails, j.asks = d.rate(0.8), true
		if other > 0 {
			j = changing(j, schedule.Every(other))
		}
		drawn = append(drawn, j)
	}
	return drawn
}

// String says what was drawn.
func (j *job) String() string {
	p := j.policy
	text := fmt.Sprintf("%s %v missed %v overlap %d abandoned %d catch-up %d grace %v jitter %v delay %v on election %v attempts %d backoff %v to %v, takes %v, fails %.2f",
		p.Name, p.Schedule, p.Missed, p.Overlap, p.Abandoned, p.MaxCatchUp, p.Grace, p.Jitter, p.InitialDelay, p.RunOnElection, p.Attempts, p.Backoff, p.MaxBackoff, j.takes, j.fails)
	if j.other.Schedule != nil {
		text += fmt.Sprintf(", other version %v", j.other.Schedule)
	}
	return text
}

func jobsText(jobs []job) string {
	texts := make([]string, len(jobs))
	for i := range jobs {
		texts[i] = jobs[i].String()
	}
	return strings.Join(texts, "; ")
}
