// Package browsertest drives the status page of tenurehttp in a headless Chromium: it is a module
// of its own, so that nothing of it enters the module that users import.
//
// The tests start one browser for all of them. Without one they are skipped, but on Linux in CI
// they fail; make install-redis installs it. What the page shows in a state that takes a day to
// come about is served from a scene, in the documents that the handler would send; what happens
// while it is open is driven on three coordinators over a redis-server.
//
//	go test -run TestScreens -screens ../../docs/images   writes the pictures of the documentation
package browsertest
