// Package redistest is the harness of the tests that need real things: redis-server processes that
// can be killed, frozen, restarted, promoted and detached ([Server]), also under Sentinels
// ([Sentinel]), as a cluster ([Cluster]) and behind TLS ([Authority]), a TCP proxy that loses,
// delays, holds or invents traffic ([Proxy]), child processes of the test binary that can be killed
// and frozen ([Child]), and a check that no goroutine stays behind ([NoLeaks]).
//
// Nothing survives its test: every process dies with the process that started it (on Linux even
// when that one is killed), every port and folder is the harness's own, all traffic stays on the
// loopback interface and every wait is bounded. The same calls work outside of tests, in benchmarks
// and long runs, through [Do].
package redistest
