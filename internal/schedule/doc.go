// Package schedule holds the decisions about a task as pure values: which of its slots run, when,
// how often, and what becomes of those that nobody ran.
//
// A slot is one time at which a task is due. The slots of a task lie on a grid: each follows from
// the one before it by Schedule.Next, never from the time of the day, so that the grid neither
// drifts with every late start nor starts anew with every leader. What is stored of it is a single
// time, the next slot. Three layers decide, each in terms of the one before it:
//
//   - The grid: First, Due, One and Misplaced find the slots that are due by a schedule, and which of
//     the missed ones run.
//   - A Policy applies all that a task is registered with: overlap, missed slots, catch-up, grace,
//     jitter, initial delay, a changed schedule, runs that were left behind.
//   - A Machine is one task in one term. Facts go in: an answer of the store, the end of an
//     attempt, the answer of a schedule, the time. Requests come out: what to ask the store, what
//     to ask the schedule, when to start an attempt, until when nothing else is due.
//
// As long as every claim replaces what its decision was made from, each slot is either run or
// counted as skipped, and none is both or twice, whoever leads and whenever (P10).
//
// Nothing here reads a clock, talks to Redis, calls the application or starts a goroutine. The
// application's own schedules are asked by the driver: see Question. The task loop of package
// tenure drives it on a real clock, the simulators on a virtual one.
//
// Times of slots are times of Redis's clock, in Unix ms or in UTC and whole milliseconds, which is
// how they are stored. Durations count by the monotonic clock of the process.
package schedule
