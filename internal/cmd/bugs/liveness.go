package main

// liveness breaks what should happen after the last fault: a leader, a run, a beat, a subscription that hears.
var liveness = []bug{}
