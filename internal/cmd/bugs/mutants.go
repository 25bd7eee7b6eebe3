package main

// mutants are changes by hand that once survived every test.
var mutants = []bug{}
