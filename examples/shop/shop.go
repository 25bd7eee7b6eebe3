package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
	"github.com/tenure-go/tenure/tenureprom"
)

// shop is one instance of the service.
type shop struct {
	coordinator *tenure.Coordinator
	server      *http.Server
	metrics     *tenureprom.Collector
	onShutdown  func() // ends the streams of the status page

	orders   atomic.Int64 // that this instance has taken, as leader
	imported atomic.Int64 // by the role ingest
	invoiced atomic.Int64 // by the task invoices
}

func newShop(env tenure.EnvOptions, adminToken string) (*shop, error) {
	s := &shop{}
	labels, err := newPodLabels()
	if err != nil {
		return nil, err
	}
	if labels != nil {
		env.Options.Election.Lead = append(env.Options.Election.Lead, labels.lead)
	}
	env.Options.Registry.Metrics = func() map[string]float64 {
		return map[string]float64{"orders": float64(s.orders.Load()), "imported": float64(s.imported.Load())}
	}
	coordinator, err := env.New()
	if err != nil {
		return nil, err
	}
	s.coordinator = coordinator
	if err := errors.Join(s.addRoles(), s.addTasks()); err != nil {
		return nil, err
	}
	handler, err := s.handler(adminToken)
	if err != nil {
		return nil, err
	}
	s.server = &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return s, nil
}

// addRoles adds the work that one instance does at a time. With Spread no instance does all of it
// while others do nothing.
func (s *shop) addRoles() error {
	ttl := s.coordinator.Options().Election.LeaseTTL // a role does not take over the options of another
	_, ingest := s.coordinator.AddRole("ingest", tenure.ElectionOptions{
		LeaseTTL: ttl, Spread: true, Lead: []tenure.LeadFunc{s.ingest},
	})
	_, export := s.coordinator.AddRole("export", tenure.ElectionOptions{
		LeaseTTL: ttl, Spread: true, Lead: []tenure.LeadFunc{tenure.Supervise("export", export, tenure.RestartPolicy{})},
	})
	return errors.Join(ingest, export)
}

// ingest imports until its term is over.
func (s *shop) ingest(ctx context.Context, term tenure.Term) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.imported.Add(1) // what it writes to should check term.Token
		}
	}
}

// export waits: a real one would hold a connection. Supervise starts it again if it fails.
func export(ctx context.Context, _ tenure.Term) error {
	<-ctx.Done()
	return nil
}

func (s *shop) addTasks() error {
	tasks := s.coordinator.Tasks()
	return errors.Join(
		tasks.Register(tenure.Task{
			Name: "invoices", Schedule: tenure.Cron("0 * * * *"), Timeout: 10 * time.Minute,
			Run: func(context.Context, tenure.TaskRun) error { s.invoiced.Add(1); return nil },
		}),
		tasks.Register(tenure.Task{
			Name: "rates", Schedule: tenure.Every(5 * time.Minute), Timeout: time.Minute, RunOnElection: true,
			Retry: tenure.RetryPolicy{Attempts: 3},
			Run:   func(context.Context, tenure.TaskRun) error { return nil },
		}),
	)
}

func (s *shop) handler(adminToken string) (http.Handler, error) {
	options := tenurehttp.Options{Logger: slog.Default()}
	if adminToken != "" {
		options.Authorize = tenurehttp.BearerToken(map[string]string{"admin": adminToken})
	}
	status, err := tenurehttp.New(s.coordinator, options)
	if err != nil {
		return nil, err
	}
	s.metrics = tenureprom.New(s.coordinator)
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.metrics)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.home)
	mux.Handle("POST /orders", tenurehttp.LeaderOnly(s.coordinator.Elector(), http.HandlerFunc(s.order), tenurehttp.Proxy(nil)))
	mux.Handle("/tenure/", http.StripPrefix("/tenure", status))
	for _, probe := range []string{"/livez", "/readyz", "/leaderz"} {
		mux.Handle("GET "+probe, status)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s.onShutdown = status.Close
	return mux, nil
}

func (s *shop) home(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintf(w, "shop %s, leads: %t\n", s.coordinator.InstanceID(), s.coordinator.IsLeader())
}

// order is served by the leader: an order gets its number from the fencing token and a count, so
// that no two leaders give the same.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	term, _ := tenure.TermFrom(r.Context())
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(placed{Number: fmt.Sprintf("%d-%d", term.Token, s.orders.Add(1)), By: s.coordinator.InstanceID()}); err != nil {
		slog.Warn("the answer to an order was not sent", "error", err)
	}
}

// placed is the answer to an order.
type placed struct {
	Number string `json:"number"`
	By     string `json:"by"`
}

// serve serves until ctx is done. Requests are answered before the lease is released.
func (s *shop) serve(ctx context.Context, l net.Listener) error {
	s.server.RegisterOnShutdown(s.onShutdown)
	defer s.metrics.Close()
	return tenurehttp.Service{Coordinator: s.coordinator, Server: s.server}.Serve(ctx, l)
}
