package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

// shop is the service: everybody answers reads, the leader alone takes orders.
type shop struct {
	*tenure.Coordinator

	store  *redis.Client // the application's; tenure has another
	orders string        // key of a counter
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		switch leader := s.Elector().Status().Leader; { // both looks cost no round trip
		case s.IsLeader():
			fmt.Fprintln(w, "leader")
		case leader != "" && leader != s.InstanceID():
			fmt.Fprintln(w, "follower of", leader)
		default:
			fmt.Fprintln(w, "follower, no leader is known")
		}
	})
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var n int64
		err := s.Elector().Do(r.Context(), func(ctx context.Context, _ tenure.Term) (err error) {
			// If a second writer would do harm, the token of the term goes along: see
			// examples/fencing.
			n, err = s.store.Incr(ctx, s.orders).Result()
			return err
		})
		switch {
		case errors.Is(err, tenure.ErrNotLeader):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "not the leader", http.StatusServiceUnavailable)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "order %d taken\n", n)
	})
	return mux
}

// report is a leader-only task.
func (s *shop) report(log *slog.Logger) tenure.TaskFunc {
	return func(ctx context.Context, run tenure.TaskRun) error {
		n, err := s.store.Get(ctx, s.orders).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		log.Info("report by the leader", "orders", n, "token", run.Token)
		return nil
	}
}

// serve runs the HTTP server and the coordinator until ctx is done or one of them ends, and stops
// them in order: first the requests, then the term.
func serve(ctx context.Context, s *shop, listener net.Listener) error {
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	return tenurehttp.Service{Coordinator: s.Coordinator, Server: server}.Serve(ctx, listener)
}
