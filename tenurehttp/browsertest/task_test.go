package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestScheduleWords: a schedule in words is the schedule, and what words do not say well has none.
func TestScheduleWords(t *testing.T) {
	t.Parallel()
	p := open(t, newScene(t).url, desk)
	for schedule, words := range map[string]string{
		"on demand":                             "only if it is triggered",
		"every 1m0s":                            "every minute",
		"every 1h30m0s":                         "every 1 hour 30 minutes",
		"every 100ms":                           "every 100 milliseconds",
		"every 1.5s":                            "",
		"at nonsense":                           "",
		"cron * * * * *":                        "every minute, UTC",
		"cron */5 * * * *":                      "every 5 minutes, UTC",
		"cron */7 * * * *":                      "",
		"cron 30 2 * * *":                       "at 02:30 every day, UTC",
		"cron CRON_TZ=Europe/Berlin 30 2 * * *": "at 02:30 every day, Europe/Berlin",
		"cron 0 7 * * MON-FRI":                  "at 07:00 on Monday to Friday, UTC",
		"cron 0 7 * * mon,wed,5":                "at 07:00 on Monday, Wednesday and Friday, UTC",
		"cron 0 7 * * 7":                        "at 07:00 on Sunday, UTC",
		"cron 15 6,18 1,15 * *":                 "at 06:15 and 18:15 on days 1 and 15 of the month, UTC",
		"cron 0 0 13 * FRI":                     "at 00:00 on day 13 of the month and on each Friday, UTC",
		"cron 0 0 1 JAN *":                      "at 00:00 on day 1 of the month in January, UTC",
		"cron 0 * * * *":                        "every hour, on the hour, UTC",
		"cron 10,40 * * * *":                    "every hour, at minutes 10 and 40, UTC",
		"cron 5 */6 * * *":                      "every 6 hours from 00:00, at minute 5, UTC",
		"cron 5 */5 * * *":                      "",
		"cron 0 9-17 * * 1-5":                   "every hour from 09 to 17 h, on the hour on Monday to Friday, UTC",
		"cron @daily":                           "at 00:00 every day, UTC",
		"cron TZ=UTC @weekly":                   "at 00:00 on Sunday, UTC",
		"cron 0 0 1-7 * *":                      "",
		"cron 0-10/2 3 * * *":                   "",
		"cron 0 0 * * MON#2":                    "",
		"cron 99 2 * * *":                       "",
		"cron <img src=x>":                      "",
		"weekly":                                "",
		"":                                      "",
	} {
		require.Equal(t, words, eval[string](p, fmt.Sprintf("import(new URL('page/schedule.js', document.baseURI)).then((m) => m.inWords(%q))", schedule)), schedule)
	}
	p.clean()
}

// TestNextOfATask: when it runs next, or why it does not.
func TestNextOfATask(t *testing.T) {
	t.Parallel()
	p := open(t, newScene(t).url, desk)
	for status, words := range map[string]string{
		`{}`:                      "not planned",
		`{schedule: "on demand"}`: "on demand",
		`{paused: true}`:          "paused",
		`{paused: true, held: true, pause: {by: "ann"}}`:              "paused by ann",
		`{running: true, held: true}`:                                 "runs now",
		`{trigger: "x", held: true, next: "2020-01-01T00:00:00Z"}`:    "held: too few instances",
		`{overdue: true, held: true, next: "2020-01-01T00:00:00Z"}`:   "held: too few instances",
		`{trigger: "x", overdue: true, next: "2020-01-01T00:00:00Z"}`: "triggered",
	} {
		require.Equal(t, words, eval[string](p, fmt.Sprintf("import(new URL('page/tasks.js', document.baseURI)).then((m) => m.nextText(%s))", status)), status)
	}
	p.clean()
}

// TestTimesOfOtherDays: a time of another day has its date, and one of another year its year: a
// task may have run a year ago to the day.
func TestTimesOfOtherDays(t *testing.T) {
	t.Parallel()
	p := open(t, newScene(t).url, desk)
	for at, words := range map[string]string{
		"2027-03-04T00:00:05": "00:00:05",
		"2027-03-03T23:59:59": "3 Mar 23:59:59",
		"2027-12-31T14:05:00": "31 Dec 14:05:00",
		"2026-03-04T14:05:00": "4 Mar 2026 14:05:00",
		"2028-03-04T14:05:00": "4 Mar 2028 14:05:00",
		"1970-01-02T14:05:00": "2 Jan 1970 14:05:00",
		"nonsense":            "unknown",
	} {
		require.Equal(t, words, eval[string](p, fmt.Sprintf("import(new URL('page/words.js', document.baseURI)).then((m) => m.clock(m.seconds(%q), m.seconds('2027-03-04T14:05:00')))", at)), at)
	}
	p.clean()
}

// TestTaskDrawer: a task shows its schedule in words and as it is written, its next five times by
// the clock of its zone and of the reader, the stack of a run on demand, and is run with arguments.
func TestTaskDrawer(t *testing.T) {
	t.Parallel()
	s := newScene(t).day()
	s.caller, s.actions = "alice", all
	s.tasks[0]["runs"].([]tenure.RunRecord)[0].State = tenure.RunFailed
	s.tasks[0]["runs"].([]tenure.RunRecord)[0].Error = "panic: no bucket\ngoroutine 7 [running]:\nmain.cleanup()"
	status := s.tasks[0]["status"].(tenure.TaskStatus)
	status.Next = time.Date(2126, 7, 1, 0, 30, 0, 0, time.UTC)
	s.tasks[0]["status"] = status
	p := open(t, s.url, desk)
	_, err := chromedp.Call(p.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
	require.NoError(t, err)
	p.run(chromedp.Navigate(s.url + "?zone#task:cleanup"))
	p.says("#drawer", "at 02:30 every day, Europe/Berlin")
	p.says("#drawer", "cron CRON_TZ=Europe/Berlin 30 2 * * *")
	p.says("#drawer .slots", "Europe/Berlin")
	p.says("#drawer .slots", "Asia/Tokyo")
	p.until("document.querySelectorAll('#drawer .slots tbody tr').length === 5")
	require.Regexp(t, `^1 Jul 2126, 02:30:00 \S+?1 Jul 2126, 09:30:00 \S+`, p.text("#drawer .slots tbody tr"), "02:30 of Berlin's summer is 09:30 in Tokyo")
	p.says("#drawer", "As long as it is paused, these pass without a run.")

	p.says("#drawer .runs pre", "panic: no bucket")
	require.False(t, eval[bool](p, "document.querySelector('#drawer .runs details').open"))
	eval[bool](p, "document.querySelector('#drawer .runs summary').click(); true")
	s.change(func() { s.actions = append([]string{}, all[1:]...) }) // it is drawn anew
	p.until("!document.querySelector('[data-action=undrain]') && document.querySelector('#drawer .runs details').open")
	p.accessible("a task with times and a stack")

	p.click("[data-action=trigger]")
	p.says("#ask", "Run cleanup once, now?web-2 runs it once, between its slots. Its slots stay as they are, and it stays paused.")
	require.Empty(t, s.commands())
	p.fill("#ask-field", "--since\n 2026-11-01 \n\n<b>")
	p.click("#ask [type=submit]")
	p.says("#ask .outcome", "It is left for the leader")
	require.Equal(t, []string{`trigger {"args":["--since","2026-11-01","\u003cb\u003e"],"task":"cleanup"}`}, s.commands())
	p.click("#ask .plain")
	p.click("[data-action=trigger]")
	p.click("#ask [type=submit]")
	p.says("#ask .outcome", "It is left for the leader")
	require.Equal(t, `trigger {"task":"cleanup"}`, s.commands()[1], "without arguments")
	p.clean()
}

// TestRunThatIsOn: a task says for how long its run has been on, and its drawer where, though it is
// not among the runs that have ended. That earlier runs failed is not said of this one.
func TestRunThatIsOn(t *testing.T) {
	t.Parallel()
	s := newScene(t).day()
	leader := s.roles[0]["leader"].(tenure.LeaderInfo)
	run := tenure.RunRecord{ID: "r1", Token: leader.Token, Started: time.Now().Add(-2*time.Hour - 9*time.Minute), State: tenure.RunRunning, Attempt: 2, InstanceID: "web-2"}
	be := func(task int, change func(*tenure.TaskStatus)) {
		s.change(func() {
			status := s.tasks[task]["status"].(tenure.TaskStatus)
			change(&status)
			s.tasks[task]["status"] = status
		})
	}
	be(2, func(t *tenure.TaskStatus) { t.Running, t.Last = true, run })
	be(3, func(t *tenure.TaskStatus) { t.Running, t.Last = true, run }) // three have failed
	p := open(t, s.url+"#task:invoices", desk)
	p.says("#tasks li:nth-child(3) .word", "running for 2 h 9 m")
	p.says("#tasks li:nth-child(4) .word", "running for 2 h 9 m, failed 3× before")
	require.NotContains(t, p.text("#tasks li:nth-child(3) .word"), "failed")
	p.says("#drawer", "Runningfor 2 h 9 m on web-2, since ")
	p.says("#drawer", ", attempt 2")
	p.accessible("a task whose run is on")

	s.change(func() { s.roles[0]["leader"] = nil })
	p.until("document.querySelector('#tasks li:nth-child(3) .word').textContent === 'running'") // whether it still is nobody knows
	p.until("!document.querySelector('#drawer').textContent.includes('on web-2, since')")
	be(3, func(t *tenure.TaskStatus) { t.Running, t.Last.State = false, tenure.RunCanceled })
	p.says("#tasks li:nth-child(4) .word", "canceled, failed 3× before")
	p.clean()
}

// TestVacancySeenFromADashboard: a process that takes no part says by what Redis knows why nobody
// leads, and until when.
func TestVacancySeenFromADashboard(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lead("", 30, 20, "web-1 1 0")
	s.lead("export", 30, 0, "web-2 19 0")
	s.lead("import", 30, 0, "web-2 19 0")
	for i, status := range []tenure.RoleStatus{{Led: true, LeaseTTL: 25 * time.Second}, {Waiting: tenure.WaitHold, Wait: 40 * time.Second}, {}} {
		delete(s.roles[i], "election")
		delete(s.roles[i], "guarantees")
		s.roles[i]["status"] = status
	}
	s.aside = true
	p := open(t, s.url, desk)
	p.says("#roles", "s of 25 s")
	band := func(n int) string {
		return strings.TrimSpace(eval[string](p, fmt.Sprintf("document.querySelectorAll('.role-band')[%d].querySelector('.why').textContent", n)))
	}
	require.Regexp(t, `^Redis has restarted, failed over or lost data: a leader may hold a lease that it forgot. Election possible in (3\d|40) s.$`, band(1))
	require.Contains(t, band(2), "no candidate asks for it")
	require.Contains(t, band(2), "The process of this page takes no part")

	s.change(func() { s.actions = all })
	eval[bool](p, "location.hash = '#term:1795295029433@import'; true")
	p.click("#drawer [data-action=forget]")
	p.says("#ask", "Forget import?For a role that no program has any more: removes the history of its terms, and its tasks with their histories.")
	p.click("#ask [type=submit]")
	p.says("#ask .outcome", "Done.")
	require.Equal(t, []string{`forget {"role":"import"}`}, s.commands())
	p.click("#ask .plain")
	eval[bool](p, "location.hash = '#term:1795295029211'; true")
	p.says("#drawer .buttons", "Resign")
	require.False(t, eval[bool](p, "Boolean(document.querySelector('#drawer [data-action=forget]'))"), "it is led")
	p.clean()
}

// TestVacancyOfARedisThatRefuses: a candidate that stands back since Redis refuses what it asks
// says what Redis says, and promises no election.
func TestVacancyOfARedisThatRefuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lead("", 30, 0, "web-1 19 0")
	const refusal = "acquire: READONLY You can't write against a read only replica."
	s.roles[0]["election"] = map[string]any{"waiting": "silence", "waiting_until": time.Now().Add(time.Hour), "error": refusal}
	p := open(t, s.url, desk)
	p.says("#roles .why", "Redis gave no usable answer for as long as a lease lasts: "+refusal)
	require.NotContains(t, p.text("#roles .why"), "Election possible")
	p.clean()
}
