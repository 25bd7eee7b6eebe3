// Package tenureprom publishes what a tenure.Coordinator says of itself as Prometheus metrics.
//
//	registry.MustRegister(tenureprom.New(coordinator))
//
// The metrics are listed in docs/metrics.md. Every series carries the label namespace, which is
// Options.Namespace. The default role has the label role="default". No label names an instance:
// Prometheus adds which process it has asked.
package tenureprom
