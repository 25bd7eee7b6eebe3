package tenurehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

// The API of a cluster, under a prefix.
func ExampleNew() {
	coordinator, _ := tenure.NewStandalone(tenure.Options{InstanceID: "web-1"}) // tenure.New with a Redis
	running, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = coordinator.Run(running) }()
	_ = coordinator.Registry().WaitFor(running, 1)

	api, err := tenurehttp.New(coordinator, tenurehttp.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer api.Close()
	mux := http.NewServeMux()
	mux.Handle("/tenure/", http.StripPrefix("/tenure", api))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/tenure/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 200 {"ok":true,"state":"active"}
}

// A handler that only the leader serves: the others say who leads.
func ExampleLeaderOnly() {
	coordinator, _ := tenure.NewStandalone(tenure.Options{InstanceID: "web-1"}) // tenure.New with a Redis
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		term, _ := tenure.TermFrom(r.Context()) // hand term.Token to what the order is written to
		fmt.Fprintln(w, "taken in a term:", term.Valid())
	})
	handler := tenurehttp.LeaderOnly(coordinator.Elector(), orders, func(w http.ResponseWriter, r *http.Request, leader tenure.NotLeaderError) {
		if leader.Leader != "" {
			tenurehttp.Proxy(nil)(w, r, leader) // or Redirect, or Reject, which can stand in place of this function
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "no leader is known")
	})
	ask := func() {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/orders", nil))
		fmt.Print(answer.Code, " ", answer.Body)
	}

	ask()
	running, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = coordinator.Run(running) }()
	for !coordinator.IsLeader() {
		<-time.After(time.Millisecond)
	}
	ask()
	// Output:
	// 503 no leader is known
	// 200 taken in a term: true
}

// Who may ask for something: callers with a token each.
func ExampleBearerToken() {
	authorize := tenurehttp.BearerToken(map[string]string{"ann": "a long secret"})
	r := httptest.NewRequest(http.MethodPost, "/api/cluster/drain", nil)
	_, err := authorize(r, tenurehttp.ActionDrain)
	fmt.Println(err)
	r.Header.Set("Authorization", "Bearer a long secret")
	fmt.Println(authorize(r, tenurehttp.ActionDrain))
	// Output:
	// tenurehttp: credentials are missing or wrong
	// ann <nil>
}
