//go:build unix

package redistest

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds what must happen; no test says how fast.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	ChildMain("echo", func() {
		usr1 := make(chan os.Signal, 1)
		signal.Notify(usr1, syscall.SIGUSR1)
		fmt.Printf("hello %s\nready\n", os.Getenv("GREETING"))
		fmt.Fprintln(os.Stderr, "on standard error")
		<-usr1
		fmt.Print("bye") // no line end
		os.Exit(7)
	})
	ChildMain("chatter", func() {
		for i := range 20_000 { // far more than a pipe holds
			fmt.Println("line", i)
		}
	})
	ChildMain("ticker", func() {
		for i := 0; ; i++ {
			fmt.Println("tick", i)
			time.Sleep(time.Millisecond) // a pace, no bounded poll: the test kills it
		}
	})
	ChildMain("listener", func() {
		ln, err := listen()
		if err != nil {
			panic(err)
		}
		fmt.Println("listen", ln.Addr())
		select {}
	})
	ChildMain("family", func() {
		err := Do(func(t TB) {
			fmt.Println("redis", Start(t).Addr())
			fmt.Println("child", StartChild(t, "listener").Expect(t, "listen ", patience))
			select {}
		})
		fmt.Println("failed", err)
	})
	ChildMain("silent", func() {})
	if RunChild() {
		return
	}
	Silence() // go-redis reports every connection that it loses
	m.Run()
}

// eventually fails the test unless cond holds within a generous bound.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	err := poll(patience, func() error {
		if !cond() {
			return fmt.Errorf("%s", what)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// refused reports whether nobody listens on addr.
func refused(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

// record runs fn as a test and returns what it fails with.
func record(fn func(t TB)) string {
	if err := Do(fn); err != nil {
		return err.Error()
	}
	return ""
}

func mustContain(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q is missing in %q", part, text)
	}
}
