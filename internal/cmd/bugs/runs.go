package main

// runs break how a claimed slot is run, retried, ended and recorded.
var runs = []bug{
	{name: "voluntary end cuts its tasks off", test: "TestP8_RunningTasksFinishOnAVoluntaryEnd", breaks: "every deploy interrupts every running task", file: "campaign.go",
		old: "\t\t\tc.tenancy.retire(cause)", new: "\t\t\tc.tenancy.end(cause)"},
	{name: "tasks cut off too late", test: "TestP8_RunningTasksAreCutAtTheirBound", breaks: "a task that would heed its context hears of the stop too late to end in time", file: "campaign.go",
		old: "ended.Add(c.e.drain*3/4)", new: "ended.Add(c.e.drain*19/20)"},
	{name: "tasks outlive a failed term", test: "TestP8_RunningTasksAreCutOnAnInvoluntaryEnd", breaks: "a task runs on in a term that was given up", file: "campaign.go",
		old: "why == lease.Resigned || why == lease.Shutdown {", new: "why != lease.Refused {"},
	{name: "tasks outlive the lease that drains", test: "TestP8_LeaseIsLostWhileTasksFinish", breaks: "a task believes in a lease that nobody renews any more", file: "term.go",
		old: "\t\tt.tasks.timer.Reset(current.CancelIn(readClock()))", new: "\t\t_ = current"},
	{name: "refused lease of draining tasks", test: "TestP8_LeaseIsLostWhileTasksFinish", breaks: "a task runs on beside the next leader after its lease was taken", file: "campaign.go",
		old: "case !c.cand.Keeps():", new: "case false:"},
	{name: "draining tasks not renewed", test: "TestP8_RunningTasksFinishOnAVoluntaryEnd", breaks: "a task that finishes during a stop has one lease for it, whatever the shutdown timeout is", file: "campaign.go",
		old: "\tif c.cand.Keeps() {", new: "\tif false {"},
	{name: "task hears before its term ends", test: "TestP8_TasksEndAfterTheTerm", breaks: "a task sees its context cancelled while IsLeader is true", file: "term.go",
		old: "\t\tled := t.term.lease.Swap(nil) != nil\n\t\tt.term.cancel(errExpired)", new: "\t\tled := true"},
	{name: "task starts while others finish", test: "TestP8_NoAttemptStartsWhileTasksFinish", breaks: "a run starts in a process that has resigned", file: "taskrun.go",
		old: "over := l.over || l.ctx.Err() != nil || !l.term.Valid()", new: "over := l.runs.Err() != nil"},
}
