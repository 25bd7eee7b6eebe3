//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// bareShares are what Redis takes, as a share of a core, for what no library can save.
type bareShares struct {
	silent float64 // as many connections as the instances will have, and nothing else
	asked  float64 // with two bare commands of each instance in each heartbeat interval: SET PX and GET
}

// bare measures the floor of instances: a connection of each that is subscribed, and connections
// for their requests, a few instances on each.
func (x *one) bare() (shares bareShares) {
	heartbeat := x.o.beat()
	count := x.o.instances
	asking := max(1, count*3/4) // as many as the pools of a fleet come to have
	progress("the floor: %d connections", count+asking)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close() // it has nothing to say
		}
	}()
	open := func() net.Conn {
		c, err := new(net.Dialer).DialContext(context.Background(), "tcp", x.server.Addr())
		if err != nil {
			x.Fatalf("the floor: %v", err)
		}
		conns = append(conns, c)
		return c
	}
	for n := range count + asking {
		if c := open(); n < count {
			if err := subscribeBare(c); err != nil {
				x.Fatalf("the floor: %v", err)
			}
		}
	}
	x.settle(0)
	shares.silent = x.share(x.o.window)

	var group sync.WaitGroup
	var ended atomic.Bool
	defer group.Wait()
	defer ended.Store(true)
	every := heartbeat * time.Duration(asking) / time.Duration(2*count) // of one connection
	for n, c := range conns[count:] {
		group.Go(func() { // ends with the connection, or when the measurement has ended
			askBare(c, n, every, &ended)
		})
	}
	time.Sleep(every)
	shares.asked = x.share(x.o.window)
	return shares
}

func subscribeBare(c net.Conn) error {
	if _, err := io.WriteString(c, "SUBSCRIBE floor\r\n"); err != nil {
		return err
	}
	in := bufio.NewReaderSize(c, 64)
	for range 6 { // *3 $9 subscribe $5 floor :1
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

// askBare sends SET and GET in turn until it has ended, evenly spread over all connections.
func askBare(c net.Conn, n int, every time.Duration, ended *atomic.Bool) {
	in := bufio.NewReaderSize(c, 64)
	time.Sleep(time.Duration(n*7919%1000) * every / 1000)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for turn := 0; !ended.Load(); turn++ {
		request := "*2\r\n$3\r\nGET\r\n$10\r\nfloor:none\r\n"
		if turn%2 == 0 {
			request = fmt.Sprintf("*5\r\n$3\r\nSET\r\n$11\r\nfloor:%05d\r\n$1\r\n1\r\n$2\r\nPX\r\n$5\r\n90000\r\n", n%100_000)
		}
		if _, err := io.WriteString(c, request); err != nil {
			return
		}
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		<-ticker.C
	}
}
