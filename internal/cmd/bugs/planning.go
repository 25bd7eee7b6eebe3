package main

// planning breaks when a task is due: clocks, schedules, jitter, catch-up.
var planning = []bug{}
