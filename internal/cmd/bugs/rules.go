package main

// rules break what the lease scripts and the candidate remember across failovers, clock steps and mixed options.
var rules = []bug{}
