package main

// elector breaks what an elector reports, which clients and options it takes, and how it stands back.
var elector = []bug{}
