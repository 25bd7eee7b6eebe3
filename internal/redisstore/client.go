package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/store"
)

// clientPanicError is the error of a call in which the client panicked.
type clientPanicError struct{ value any }

func (e *clientPanicError) Error() string {
	return fmt.Sprintf("the reply is none of Redis: the client panicked: %.200s", fmt.Sprint(e.value))
}

// errGoexit is the error of a call in which a hook of the client has called runtime.Goexit.
var errGoexit error = &clientPanicError{"runtime.Goexit"}

// panicked reports whether the client panicked.
func panicked(err error) bool {
	_, is := store.AsType[*clientPanicError](err)
	return is
}

// recovering calls the client. go-redis panics over replies that no Redis sends, such as a text of
// 2^62 bytes: the panic becomes an error, which means what silence means. So does an error of a
// hook whose methods panic, mostly a nil pointer. Every call of the client goes through it.
func recovering(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &clientPanicError{value}
		}
	}()
	if err = call(); err != nil {
		_ = err.Error()
		_ = errors.Is(err, errGoexit)
		if network, is := store.AsType[net.Error](err); is {
			_ = network.Timeout()
		}
	}
	return err
}

// process sends a command and waits for its answer. A client that sends later, an asynchronous
// AutoPipeliner, returns nil from Process at once: the error of the command is the one that counts,
// and asking for it waits.
func (s *Store) process(ctx context.Context, cmd redis.Cmder) error {
	return recovering(func() error {
		_ = s.rdb.Process(ctx, cmd)
		err := withKey(cmd)
		s.calls.heard(err)
		return err
	})
}

// read sends a command that reads a key, to the master of it. A cluster's client that reads from
// replicas would ask one of them, each time another: it may lag behind, and the cursor of a listing
// by one says nothing to another, so that the listing would not be whole.
func (s *Store) read(ctx context.Context, key string, cmd redis.Cmder) error {
	if s.clientFacts().FromReplicas {
		s.pipeline(ctx, key, []redis.Cmder{cmd})
		var refused redis.Error
		if err := cmd.Err(); err == nil || !errors.As(err, &refused) {
			return err
		}
	}
	return s.process(ctx, cmd) // of a cluster it follows a slot that has moved
}

// withKey is the error of a command. If its key is of the wrong type, the error names command and
// key as those of the scripts do, see refusedCall: Redis names neither.
func withKey(cmd redis.Cmder) error {
	err, args := cmd.Err(), cmd.Args()
	if err == nil || len(args) < 2 || strings.HasPrefix(cmd.Name(), "eval") || !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	return refusal(fmt.Sprintf("%v [%s %v]", err, strings.ToUpper(cmd.Name()), args[1]))
}

// pipelined sends commands in one round trip; each has its own error then. key is one of theirs: in
// a cluster they must share its slot.
func (s *Store) pipelined(ctx context.Context, key string, cmds []redis.Cmder) {
	s.pipeline(ctx, key, cmds)
	if _, clustered := s.rdb.(*redis.ClusterClient); !clustered {
		return
	}
	for _, cmd := range cmds { // the cluster client follows a slot that has moved
		if cmd.Err() != nil {
			cmd.SetErr(s.process(ctx, cmd))
		}
	}
}

// pipeline is pipelined, but that it does not follow a slot of a cluster. A cluster client would
// read the replies in goroutines of its own, in which a panic ends the process: the commands go to
// the master of the slot.
func (s *Store) pipeline(ctx context.Context, key string, cmds []redis.Cmder) {
	if !s.Pipelines() {
		for _, cmd := range cmds {
			cmd.SetErr(s.process(ctx, cmd))
		}
		return
	}
	sent := false
	err := recovering(func() error {
		master, err := s.masterFor(ctx, key)
		if err != nil {
			return err
		}
		batch := master.Pipeline()
		for _, cmd := range cmds {
			_ = batch.Process(ctx, cmd)
		}
		sent = true
		_, err = batch.Exec(ctx)
		return err
	})
	said := slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) // older clients do not say it of a dial
	if !panicked(err) && sent && (said || err == nil) {
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				cmd.SetErr(recovering(func() error { return withKey(cmd) }))
			}
			s.calls.heard(cmd.Err())
		}
		return
	}
	for _, cmd := range cmds { // the client has not said which of them the error is about
		cmd.SetErr(err)
	}
}

// Pipelines reports whether the client reads the replies of a pipeline in the goroutine of the
// caller. One that is not known may not.
func (s *Store) Pipelines() bool {
	switch s.rdb.(type) {
	case *redis.Client, *redis.ClusterClient:
		return true
	}
	return false
}

// masterFor returns the client of the server that serves a key: in a cluster that of the master of
// its slot.
func (s *Store) masterFor(ctx context.Context, key string) (redis.UniversalClient, error) {
	if cluster, clustered := s.rdb.(*redis.ClusterClient); clustered {
		return cluster.MasterForKey(ctx, key)
	}
	return s.rdb, nil
}
