// Package tenurehttp is tenure over HTTP. A Handler serves the state of the cluster, probes, a
// stream of changes and, with an Authorizer, commands to instances. LeaderOnly is for handlers that
// only the leader serves. A Service stops a server and a coordinator in order. It needs nothing but
// the standard library. docs/http.md has each endpoint.
package tenurehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"time"

	"github.com/tenure-go/tenure"
)

// defaultGrace and the ShutdownTimeout that is the default fit into the 30 s of Kubernetes.
const defaultGrace = 4 * time.Second

// Service is an HTTP server beside a coordinator.
type Service struct {
	// Coordinator must be set, and may not run already.
	Coordinator *tenure.Coordinator
	// Server must be set, and may not run already. It serves TLS if its TLSConfig has a certificate
	// (Certificates, GetCertificate or GetConfigForClient), as http.Server.ServeTLS does without
	// files; a listener of crypto/tls is served as it is.
	Server *http.Server
	// Lead is leader work, as for Coordinator.Run.
	Lead []tenure.LeadFunc
	// Grace is how long requests may still take after the stop; then their connections are closed.
	// Together with tenure.Options.ShutdownTimeout it must fit into the time that the platform
	// gives. Default 4 s. A negative value closes them at once.
	Grace time.Duration
}

// Serve serves on the listener and takes part in the elections until ctx is done, or either of them
// ends by itself. Then it stops both in order. First the server: it takes no new connection, and
// requests that are on are answered, while this process goes on leading. Then the coordinator: its
// work ends, and the lease is released. So a request that relies on leading is not cut off by the
// stop, and nobody else leads before it is answered.
//
// Serve returns when both have ended. It returns nil if ctx ended it and all went well. Else it
// joins what Coordinator.Run returned, what ended the server other than the stop, and
// context.DeadlineExceeded if Grace has cut requests off. It closes the listener. Connections that
// a handler has hijacked are not waited for. tenure.ErrMisconfigured: a field, or l, is missing.
func (s Service) Serve(ctx context.Context, l net.Listener) error {
	if l == nil {
		return fmt.Errorf("%w: Service.Serve got a nil listener", tenure.ErrMisconfigured)
	}
	if s.Coordinator == nil || s.Server == nil {
		_ = l.Close()
		return fmt.Errorf("%w: tenurehttp.Service needs a Coordinator and a Server", tenure.ErrMisconfigured)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.serve(l) }() // ends with the stop of the server; awaited below
	term, release := context.WithCancelCause(context.WithoutCancel(ctx))
	defer release(nil)
	coordinated := make(chan error, 1)
	go func() { // ends with release; awaited below
		defer stop()
		coordinated <- s.Coordinator.Run(term, s.Lead...)
	}()

	var ended error
	select {
	case end := <-served: // by itself, or since somebody else has closed it
		ended = fmt.Errorf("tenurehttp: the server ended: %w", end)
	case <-ctx.Done():
	}
	err := s.stopServer(ctx)
	if ended == nil {
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			ended = fmt.Errorf("tenurehttp: the server ended: %w", end)
		}
	}
	release(context.Cause(ctx)) // which its work hears of
	return errors.Join(ended, err, <-coordinated)
}

// serve serves on the listener until the server is stopped.
func (s Service) serve(l net.Listener) error {
	defer func() { _ = l.Close() }() // which ServeTLS leaves open if it cannot begin
	config := s.Server.TLSConfig
	secured := reflect.TypeOf(l) == reflect.TypeOf(tls.NewListener(nil, nil))
	if config == nil || secured || len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil {
		return s.Server.Serve(l)
	}
	return s.Server.ServeTLS(l, "", "")
}

// stopServer waits for the requests that are on, for Grace.
func (s Service) stopServer(ctx context.Context) error {
	grace := s.Grace
	if grace == 0 {
		grace = defaultGrace
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := s.Server.Shutdown(bounded)
	if err != nil {
		_ = s.Server.Close()
		return fmt.Errorf("tenurehttp: stopping the server: %w", err)
	}
	return nil
}
