// Package virtual is what a program that runs the full stack in virtual time (the virtual tests of
// package tenure, which need its insides) and the tests themselves say to each other: which run to
// make (Request), what came of it (Result, Figures), and how a failing run is made smaller
// (Shrink).
package virtual
