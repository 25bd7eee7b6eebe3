package tenurehttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

// patience is far longer than anything here takes.
const patience = time.Minute

// serving is a service whose requests wait until they are let go.
type serving struct {
	*testing.T
	coordinator *tenure.Coordinator
	url         string
	stop        context.CancelFunc
	ended       chan error
	asked       chan struct{}
	answer      chan struct{}
	server      *http.Server
}

func serve(t *testing.T, grace time.Duration) *serving {
	coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	require.NoError(t, err)
	s := &serving{T: t, coordinator: coordinator, ended: make(chan error, 1), asked: make(chan struct{}, 1), answer: make(chan struct{})}
	s.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked <- struct{}{}
		select {
		case <-s.answer:
		case <-r.Context().Done():
		}
		if coordinator.IsLeader() {
			_, _ = io.WriteString(w, "leader")
		}
	}), ReadHeaderTimeout: patience}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.url = "http://" + l.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	t.Cleanup(stop)
	go func() { // ends with stop
		s.ended <- tenurehttp.Service{Coordinator: coordinator, Server: s.server, Grace: grace}.Serve(ctx, l)
	}()
	require.Eventually(t, coordinator.IsLeader, patience, time.Millisecond)
	return s
}

// get asks, and returns the answer.
func (s *serving) get() <-chan string {
	answer := make(chan string, 1)
	go func() { // ends with the answer
		response, err := http.Get(s.url)
		if err != nil {
			answer <- "error"
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		answer <- string(text)
	}()
	return answer
}

func (s *serving) end() error {
	select {
	case err := <-s.ended:
		return err
	case <-time.After(patience):
		s.Fatal("Serve does not return")
		return nil
	}
}

// TestServeAnswersBeforeItReleases: a request that is on when the stop comes is answered by a
// process that still leads.
func TestServeAnswersBeforeItReleases(t *testing.T) {
	s := serve(t, patience)
	answer := s.get()
	<-s.asked
	s.stop()
	require.Eventually(t, func() bool { // nobody new gets in
		conn, err := net.Dial("tcp", s.url[len("http://"):])
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, patience, time.Millisecond)
	require.Never(t, func() bool { return !s.coordinator.IsLeader() }, 100*time.Millisecond, time.Millisecond)
	close(s.answer)
	require.Equal(t, "leader", <-answer)
	require.NoError(t, s.end())
	require.False(t, s.coordinator.IsLeader())
}

// TestServeCutsOffAfterGrace: a request that hangs keeps the lease no longer than Grace.
func TestServeCutsOffAfterGrace(t *testing.T) {
	s := serve(t, 10*time.Millisecond)
	answer := s.get()
	<-s.asked
	s.stop()
	require.ErrorIs(t, s.end(), context.DeadlineExceeded)
	require.False(t, s.coordinator.IsLeader())
	require.Equal(t, "error", <-answer)
}

// TestServeWithoutGrace: with a negative Grace no request keeps the lease at all.
func TestServeWithoutGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
		require.NoError(t, err)
		asked, l := make(chan struct{}), newPipes()
		server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(asked)
			<-r.Context().Done()
		})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { // ends with stop
			ended <- tenurehttp.Service{Coordinator: coordinator, Server: server, Grace: -1}.Serve(ctx, l)
		}()
		conn, err := l.dial(ctx, "", "")
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
		require.NoError(t, err)
		<-asked
		stopped := time.Now()
		stop()
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		require.Less(t, time.Since(stopped), time.Second)
	})
}

// TestServerThatNeverBegan is an error also if the stop came first.
func TestServerThatNeverBegan(t *testing.T) {
	for range 20 { // whichever of the two Serve sees first
		coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		config := &tls.Config{Certificates: []tls.Certificate{{}}, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}}
		server := &http.Server{TLSConfig: config, ReadHeaderTimeout: patience}
		err = tenurehttp.Service{Coordinator: coordinator, Server: server}.Serve(ctx, newPipes())
		require.ErrorContains(t, err, "CipherSuites")
	}
}

// TestServeEndsWithTheServer: if the server ends by itself, so does the coordinator.
func TestServeEndsWithTheServer(t *testing.T) {
	coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	require.NoError(t, err)
	broken := errors.New("broken")
	err = tenurehttp.Service{Coordinator: coordinator, Server: &http.Server{ReadHeaderTimeout: patience}}.Serve(t.Context(), deaf{broken})
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, coordinator.Run(t.Context()), tenure.ErrStopped)
}

// TestServerClosedByAnother is no stop that was asked for.
func TestServerClosedByAnother(t *testing.T) {
	s := serve(t, patience)
	require.NoError(t, s.server.Close())
	require.ErrorIs(t, s.end(), http.ErrServerClosed)
	require.False(t, s.coordinator.IsLeader())
}

// TestServeEndsWithTheCoordinator: if Run ends by itself, here since it was called before, the
// server is stopped.
func TestServeEndsWithTheCoordinator(t *testing.T) {
	coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, coordinator.Run(ended))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	err = tenurehttp.Service{Coordinator: coordinator, Server: &http.Server{ReadHeaderTimeout: patience}}.Serve(t.Context(), l)
	require.ErrorIs(t, err, tenure.ErrStopped)
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestServeSaysWhyItStops: work hears of the cause of the context of Serve, as it does of Run's.
func TestServeSaysWhyItStops(t *testing.T) {
	coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	why := errors.New("a new version")
	ctx, stop := context.WithCancelCause(t.Context())
	var heard error
	require.NoError(t, tenurehttp.Service{
		Coordinator: coordinator, Server: &http.Server{ReadHeaderTimeout: patience},
		Lead: []tenure.LeadFunc{func(ctx context.Context, _ tenure.Term) error {
			stop(why)
			<-ctx.Done()
			heard = context.Cause(ctx)
			return nil
		}},
	}.Serve(ctx, l))
	require.ErrorIs(t, heard, tenure.ErrStopped)
	require.ErrorIs(t, heard, why)
}

// TestServeOverTLS: a server that has a certificate serves TLS and HTTP/2, as with ServeTLS, unless
// the listener does already.
func TestServeOverTLS(t *testing.T) {
	own := httptest.NewUnstartedServer(nil)
	own.StartTLS() // for its certificate
	t.Cleanup(own.Close)
	certificate, client := own.TLS.Certificates[0], own.Client()
	for name, config := range map[string]*tls.Config{
		"Certificates":   {Certificates: []tls.Certificate{certificate}},
		"GetCertificate": {GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }},
		"GetConfigForClient": {GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}}, nil
		}},
		"listener": nil,
		"none":     {MinVersion: tls.VersionTLS13},
	} {
		t.Run(name, func(t *testing.T) {
			coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
			require.NoError(t, err)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			scheme, protocol := "https", 2
			at := l.Addr().String()
			switch name {
			case "listener":
				config, protocol = &tls.Config{Certificates: []tls.Certificate{certificate}}, 1
				l = tls.NewListener(l, config)
			case "none":
				scheme, protocol = "http", 1
			}
			server := &http.Server{TLSConfig: config, ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- tenurehttp.Service{Coordinator: coordinator, Server: server}.Serve(ctx, l) }() // ends with stop
			transport := client.Transport.(*http.Transport).Clone()
			transport.ForceAttemptHTTP2 = true
			response, err := (&http.Client{Transport: transport}).Get(scheme + "://" + at)
			if err == nil {
				_ = response.Body.Close()
			}
			transport.CloseIdleConnections()
			stop()
			require.NoError(t, <-ended)
			require.NoError(t, err)
			require.Equal(t, protocol, response.ProtoMajor)
		})
	}
}

// TestServeClosesTheListener also of a server whose TLS cannot be set up.
func TestServeClosesTheListener(t *testing.T) {
	coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{{}}, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}}
	server := &http.Server{TLSConfig: config, ReadHeaderTimeout: patience}
	err = tenurehttp.Service{Coordinator: coordinator, Server: server}.Serve(t.Context(), l)
	require.ErrorContains(t, err, "CipherSuites")
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestServeRefuses: what is missing is named, and a listener that is there is closed.
func TestServeRefuses(t *testing.T) {
	coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: patience}
	for _, s := range []tenurehttp.Service{{}, {Coordinator: coordinator}, {Server: server}} {
		require.ErrorIs(t, s.Serve(t.Context(), nil), tenure.ErrMisconfigured)
		l := newPipes()
		require.ErrorIs(t, s.Serve(t.Context(), l), tenure.ErrMisconfigured)
		select {
		case <-l.closed:
		default:
			t.Fatal("the listener is open")
		}
	}
	err = tenurehttp.Service{Coordinator: coordinator, Server: server}.Serve(t.Context(), nil)
	require.ErrorIs(t, err, tenure.ErrMisconfigured)
	require.Equal(t, tenure.InstanceJoining, coordinator.State(), "nothing has begun")
}

// deaf accepts nothing.
type deaf struct{ err error }

func (d deaf) Accept() (net.Conn, error) { return nil, d.err }
func (deaf) Close() error                { return nil }
func (deaf) Addr() net.Addr              { return &net.TCPAddr{} }
