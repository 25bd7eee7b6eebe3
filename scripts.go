package tenure

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// keys is the key table of one namespace. Everything of one role lies in one hash slot.
type keys struct{ ns string }

func (k keys) lease(role string) string {
	if role == "" {
		return k.ns + ":leader"
	}
	return k.ns + ":leader:" + role
}
func (k keys) instances() string          { return k.ns + ":instances" }
func (k keys) heartbeat(id string) string { return k.ns + ":instance:" + id + ":heartbeat" }
func (k keys) beats() string              { return k.ns + ":beats" }
func (k keys) tasks() string              { return k.ns + ":tasks" }
func (k keys) task(name string) string    { return k.ns + ":task:" + name }
func (k keys) runs(name string) string    { return k.ns + ":task:" + name + ":runs" }
func (k keys) events() string             { return k.ns + ":events" }

// script is one section of scripts.lua.
type script struct{ name, source, sha string }

// scripts holds every script of scripts.lua, one field a section.
type scripts struct {
	acquire *script
	renew   *script
	release *script
	leader  *script

	openTask   *script
	planTask   *script
	claimTask  *script
	finishTask *script
	readTask   *script
	pauseTask  *script

	beat       *script
	deregister *script
	look       *script
	hold       *script
	sweep      *script
	adopt      *script
	scan       *script
	instance   *script
}

//go:embed scripts.lua
var scriptsLua string

// contract is what the embedded file says, loaded once.
var contract = mustLoadScripts(scriptsLua)

func mustLoadScripts(source string) *scripts {
	loaded, err := loadScripts(source)
	if err != nil {
		panic(err) // the file is part of this package
	}
	return loaded
}

// loadScripts reads the sections into the typed fields. A section without a field, and a field without a section, is an error.
func loadScripts(source string) (*scripts, error) {
	var loaded scripts
	fields := map[string]**script{
		"acquire": &loaded.acquire, "renew": &loaded.renew, "release": &loaded.release, "leader": &loaded.leader,
		"open_task": &loaded.openTask, "plan_task": &loaded.planTask, "claim_task": &loaded.claimTask,
		"finish_task": &loaded.finishTask, "read_task": &loaded.readTask, "pause_task": &loaded.pauseTask,
		"beat": &loaded.beat, "deregister": &loaded.deregister, "look": &loaded.look, "hold": &loaded.hold, "sweep": &loaded.sweep,
		"adopt": &loaded.adopt, "scan": &loaded.scan, "instance": &loaded.instance,
	}
	parts := strings.Split(source, "\n--@ ")
	var preludes []string // a later one adds to those before, for the sections behind it
	for _, part := range parts[1:] {
		name, body, _ := strings.Cut(part, "\n")
		if name == "prelude" {
			preludes = append(preludes, body)
			continue
		}
		field, known := fields[name]
		if !known || *field != nil {
			return nil, fmt.Errorf("tenure: scripts.lua: section %q has no field, or is there twice", name)
		}
		*field = newScript(name, strings.Join(preludes, ""), body)
	}
	for name, field := range fields {
		if *field == nil {
			return nil, fmt.Errorf("tenure: scripts.lua: section %q is missing", name)
		}
	}
	return &loaded, nil
}

// newScript makes a section the body of a function, so that a refusal anywhere in it becomes the error reply of the script.
func newScript(name, prelude, body string) *script {
	source := prelude + "local function body()\n" + body + `end
local ok, reply = pcall(body)
if ok then return reply end
if type(reply) == 'table' then return { err = reply.text } end
error(reply, 0)
`
	sum := sha1.Sum([]byte(source))
	return &script{name: name, source: source, sha: hex.EncodeToString(sum[:])}
}

// redisStore is the Redis side of everything: the only code that knows Redis. It is safe for concurrent use.
type redisStore struct {
	rdb     redis.UniversalClient
	keys    keys
	scripts *scripts
}

// newRedisStore checks that the client can serve the contract.
func newRedisStore(rdb redis.UniversalClient, c *checker, opts Options) *redisStore {
	switch client := rdb.(type) {
	case nil:
		c.refuse("rdb", "nil", "must be a go-redis client; without Redis use NewStandalone")
	case *redis.Ring:
		c.refuse("rdb", "*redis.Ring", "cannot be used: its shards do not know of each other's leases; use *redis.Client or *redis.ClusterClient")
	case *redis.ClusterClient:
		if client == nil {
			c.refuse("rdb", "nil", "must be a go-redis client; without Redis use NewStandalone")
		}
		c.tagged("Namespace", opts.Namespace)
	case *redis.Client:
		if client == nil {
			c.refuse("rdb", "nil", "must be a go-redis client; without Redis use NewStandalone")
		}
	}
	s := &redisStore{rdb: rdb, keys: keys{opts.Namespace}, scripts: contract}
	s.checkElection(c, "Election.", opts.Election)
	return s
}

// checkElection refuses what only this client cannot serve.
func (s *redisStore) checkElection(c *checker, prefix string, opts ElectionOptions) {
	if _, cluster := s.rdb.(*redis.ClusterClient); cluster && opts.LeaderKey != "" {
		c.tagged(prefix+"LeaderKey", opts.LeaderKey)
	}
}

// tagged refuses a name that a Redis Cluster would scatter over its slots.
func (c *checker) tagged(field, name string) {
	if !tagPattern.MatchString(name) {
		c.refuse(field, name, "needs a {hash tag} on a Redis Cluster, so that its keys share a slot: %q", "{"+name+"}")
	}
}

// args builds the arguments of one script call: keys, then ARGV. Their count is known to the caller, so that one slice serves.
func (s *script) args(keyCount string, room int) []any {
	args := make([]any, 0, 3+room)
	return append(args, "evalsha", s.sha, keyCount)
}

// text runs a script that replies with one line.
func (s *redisStore) text(ctx context.Context, sc *script, args []any) (string, error) {
	cmd := redis.NewStringCmd(ctx, args...)
	err := s.rdb.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewStringCmd(ctx, sc.whole(args)...)
		err = s.rdb.Process(ctx, cmd)
	}
	if err != nil {
		return "", s.explain(sc.name, err)
	}
	return cmd.Val(), nil
}

// list runs a script that replies with a list.
func (s *redisStore) list(ctx context.Context, sc *script, args []any) ([]any, error) {
	cmd := redis.NewSliceCmd(ctx, args...)
	err := s.rdb.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewSliceCmd(ctx, sc.whole(args)...)
		err = s.rdb.Process(ctx, cmd)
	}
	if err != nil {
		return nil, s.explain(sc.name, err)
	}
	return cmd.Val(), nil
}

// whole is the same call with the source instead of its digest, for a server that does not know the script.
func (s *script) whole(args []any) []any {
	return append([]any{"eval", s.source}, args[2:]...)
}

// storeError is an error of Redis with what it means for us.
type storeError struct {
	kind error  // ErrUnreachable or ErrMisconfigured
	op   string // script or command
	mend string // what to do about it; "" where there is nothing to do but wait
	err  error
}

func (e *storeError) Error() string {
	text := fmt.Sprintf("%v: %s: %v", e.kind, e.op, e.err)
	if e.mend != "" {
		text += " (mend: " + e.mend + ")"
	}
	return text
}

func (e *storeError) Unwrap() []error { return []error{e.kind, e.err} }

// refusal is an error of Redis of which a part is left out.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes it a redis.Error.
func (refusal) RedisError() {}

// remedy tells one misconfiguration from another: met by several scripts, it is the same.
func remedy(err error) string {
	if e, ok := errors.AsType[*storeError](err); ok {
		return e.mend
	}
	return err.Error()
}

// refusedCall is how the prelude of scripts.lua names the command and the key that Redis refused.
var refusedCall = regexp.MustCompile(`\[([A-Z]+) (.+)\]`)

// explain says what an error means. A cluster whose node is gone may have moved its slots: by itself go-redis looks for them once in
// ClusterOptions.ClusterStateReloadInterval, a minute, unless a node that answers tells it.
func (s *redisStore) explain(op string, err error) error {
	var refused redis.Error
	if cluster, is := s.rdb.(*redis.ClusterClient); is && !errors.As(err, &refused) {
		cluster.ReloadState(context.Background()) // in a goroutine of its own, one at a time
	}
	return explain(op, err)
}

// explain tells a misconfiguration, which somebody has to mend, from everything else, which means unknown.
func explain(op string, err error) error {
	e := &storeError{kind: ErrUnreachable, op: op, err: err}
	var refused redis.Error
	if !errors.As(err, &refused) {
		if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
			e.mend = "have the TLSConfig of the Redis client trust the server's certificate (RootCAs, ServerName), or renew that"
		}
		return e
	}
	text := refused.Error()
	if told, _, more := strings.Cut(text, ", with args beginning with:"); more { // a nonce may be among them
		text, e.err = told, refusal(told)
	}
	command, key := op, ""
	if found := refusedCall.FindStringSubmatch(text); found != nil {
		command, key = found[1], found[2]
	}
	starts := func(prefixes ...string) bool {
		for _, prefix := range prefixes {
			if strings.HasPrefix(text, prefix) {
				return true
			}
		}
		return false
	}
	switch {
	case starts("NOPERM") || strings.Contains(text, "executing the script can't") || // within a script, up to Redis 7.0
		strings.Contains(text, "ACL failure in script"): // and since 7.2, and Valkey
		e.mend = "grant the Redis user +eval +evalsha and access to the keys and channels of the namespace"
		if key != "" {
			e.mend = fmt.Sprintf("grant the Redis user +%s and access to ~%s", strings.ToLower(command), key)
		}
	case starts("WRONGTYPE"):
		e.mend = "the key belongs to something else: choose another Namespace, or LeaderKey, or remove it"
		if key != "" {
			e.mend = fmt.Sprintf("the key %s belongs to something else: choose another Namespace, or LeaderKey, or remove it", key)
		}
	case starts("BADTERM"):
		e.mend = fmt.Sprintf("the hash %s was written by something else: repair its field token, or remove it while nobody leads", key)
	case starts("BADTASK"):
		e.mend = fmt.Sprintf("the hash %s was written by something else: repair the field, or remove the hash and with it what the task has run", key)
	case starts("CROSSSLOT"):
		e.mend = "give Namespace and LeaderKey a {hash tag}"
	case starts("NOAUTH", "WRONGPASS"), strings.Contains(text, "AUTH <password> called without any password"),
		strings.Contains(text, "unauthenticated"): // more arguments than Redis reads of a client that has not logged in
		e.mend = "set Username and Password of the Redis client"
	case starts("ERR unknown command"):
		e.mend = "tenure needs Redis 6.2 or later with Lua scripting"
	default:
		return e
	}
	e.kind = ErrMisconfigured
	return e
}
