package simnet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

// FramedServer answers with the bytes that a test gives it, whatever they are.
type FramedServer struct {
	// Reply gives what is written for a command; say writes more to the same connection, then and
	// later. ok is false for commands that the server answers by itself: those that a client
	// connects with.
	Reply func(args []string, say func(string)) (frame string, ok bool)

	ended sync.WaitGroup
}

// Client returns a client that talks to the server, at once and with short patience.
func (s *FramedServer) Client(change ...func(*redis.Options)) *redis.Client {
	opts := &redis.Options{
		Addr: "127.0.0.1:6379", DisableIdentity: true, MaxRetries: -1, ReadTimeout: time.Second,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if err := ctx.Err(); err != nil { // as that of the system does
				return nil, err
			}
			return s.Connect(), nil
		},
	}
	clientopts.Maintenance(opts, "disabled")
	for _, fn := range change {
		fn(opts)
	}
	return redis.NewClient(opts)
}

// Connect returns the client's end of a new connection. The server's ends with it.
func (s *FramedServer) Connect() net.Conn {
	here, there := net.Pipe()
	s.ended.Go(func() { s.serve(there) }) // ends when the client closes its end
	return here
}

// Wait returns when all connections have ended.
func (s *FramedServer) Wait() { s.ended.Wait() }

// serve answers on one connection. What is written lies ready before the other end reads it, as it
// does on a connection of the system: a client may send two commands and then read.
func (s *FramedServer) serve(conn net.Conn) {
	defer conn.Close()
	out, done := make(chan string, 1000), make(chan struct{})
	defer close(done)
	s.ended.Go(func() { // ends with serve, or with the connection
		for {
			select {
			case frame := <-out:
				if _, err := io.WriteString(conn, frame); err != nil {
					return
				}
			case <-done:
				return
			}
		}
	})
	say := func(frame string) {
		select {
		case out <- frame:
		case <-done:
		}
	}
	r := bufio.NewReader(conn)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		if frame, ok := s.Reply(args, say); ok {
			say(frame)
			continue
		}
		switch args[0] {
		case "hello":
			say(map[string]string{"2": "*0\r\n", "3": "%1\r\n+proto\r\n:3\r\n"}[args[1]])
		case "subscribe":
			for _, channel := range args[1:] {
				say(SubscribedFrame(channel))
			}
		default:
			say("+OK\r\n")
		}
	}
}

// readCommand reads the next command, its name in lower case.
func readCommand(r *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	count, err := number()
	if err != nil {
		return nil, err
	}
	args := make([]string, count)
	for i := range args {
		size, err := number()
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	args[0] = strings.ToLower(args[0])
	return args, nil
}

// SubscribedFrame is the answer to a subscription.
func SubscribedFrame(channel string) string {
	return fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(channel), channel)
}

// MessageFrame is a message on a channel.
func MessageFrame(channel, payload string) string {
	return fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(channel), channel, len(payload), payload)
}
