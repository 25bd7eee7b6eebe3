package main

// runs break how a claimed slot is run, retried, ended and recorded.
var runs = []bug{}
