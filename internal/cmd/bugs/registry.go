package main

// registry breaks heartbeats, sweeps, and what is said of instances.
var registry = []bug{}
