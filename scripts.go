package tenure

import (
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/tls"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
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

// parts are the key of a lease and all that is derived from it: keys, and the channel of its hints.
func (keys) parts(lease string) []string {
	return []string{lease, lease + ":since", lease + ":term", lease + ":terms", lease + ":events"}
}

// taken says which key or channel of the namespace, that is none of a lease, a lease key would share; "": none.
func (k keys) taken(lease string) string {
	for _, part := range k.parts(lease) {
		switch part {
		case k.instances(), k.beats(), k.hold(), k.removed(), k.tasks(), k.events(), k.ns + ":metrics", k.ns + ":log":
			return part
		}
		if strings.HasPrefix(part, k.task("")) || strings.HasPrefix(part, k.ns+":instance:") {
			return part
		}
	}
	return ""
}

// shared says which key or channel two leases would share; "": none.
func (k keys) shared(lease, other string) string {
	for _, part := range k.parts(lease) {
		if slices.Contains(k.parts(other), part) {
			return part
		}
	}
	return ""
}

func (k keys) instances() string          { return k.ns + ":instances" }
func (k keys) heartbeat(id string) string { return k.ns + ":instance:" + id + ":heartbeat" }
func (k keys) beats() string              { return k.ns + ":beats" }
func (k keys) tasks() string              { return k.ns + ":tasks" }
func (k keys) task(name string) string    { return k.ns + ":task:" + name }
func (k keys) runs(name string) string    { return k.ns + ":task:" + name + ":runs" }
func (k keys) events() string             { return k.ns + ":events" }
func (k keys) own(id string) string       { return k.ns + ":instance:" + id + ":events" }

// leaseKey is the key of the lease of a role, and leaseEvents the channel of its hints: whoever shares the lease hears them,
// whatever they call their namespace and the role.
func (k keys) leaseKey(o ElectionOptions) string    { return cmp.Or(o.LeaderKey, k.lease(o.Role)) }
func (k keys) leaseEvents(o ElectionOptions) string { return k.leaseKey(o) + ":events" }

// hashTag is what a Redis Cluster hashes of a key: what stands between the first brace and the next closing one, if anything does.
// Keys of one hash tag lie in one slot.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

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
	retryTask  *script
	finishTask *script
	readTask   *script
	pauseTask  *script

	beat       *script
	deregister *script
	look       *script
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
		"retry_task": &loaded.retryTask, "finish_task": &loaded.finishTask, "read_task": &loaded.readTask, "pause_task": &loaded.pauseTask,
		"beat": &loaded.beat, "deregister": &loaded.deregister, "look": &loaded.look, "sweep": &loaded.sweep,
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
	rdb      redis.UniversalClient
	keys     keys
	scripts  *scripts
	renewals *renewals
	id       string
	secret   func() string
	spread   bool // the keys may lie on several nodes: a Redis Cluster, or a client of which that is not known
	tls      bool // the client speaks TLS
}

// newRedisStore checks that the client can serve the contract.
func newRedisStore(rdb redis.UniversalClient, c *checker, opts Options) *redisStore {
	s := &redisStore{
		rdb: rdb, keys: keys{opts.Namespace}, scripts: contract, renewals: newRenewals(), id: opts.InstanceID, secret: opts.secret,
	}
	missing := rdb == nil
	switch client := rdb.(type) {
	case *redis.Client:
		if missing = client == nil; !missing {
			s.tls = client.Options().TLSConfig != nil
		}
	case *redis.ClusterClient:
		if missing = client == nil; !missing {
			s.tls = client.Options().TLSConfig != nil
		}
		s.spread = true
	case *redis.Ring:
		c.refuse("rdb", "*redis.Ring", "cannot be used: its shards do not know of each other's leases; use *redis.Client or *redis.ClusterClient")
	default: // an AutoPipeliner, or a wrapper of the application's own: either may stand before a cluster
		s.spread = true
	}
	if missing {
		s.spread = false
		c.refuse("rdb", "nil", "must be a go-redis client; without Redis use NewStandalone")
	} else if s.spread {
		c.tagged("Namespace", opts.Namespace)
	}
	s.checkElection(c, "Election.", opts.Election)
	return s
}

// checkElection refuses what only this client cannot serve.
func (s *redisStore) checkElection(c *checker, prefix string, opts ElectionOptions) {
	if s.spread && opts.LeaderKey != "" {
		c.tagged(prefix+"LeaderKey", opts.LeaderKey)
	}
}

// tagged refuses a name that a Redis Cluster would scatter over its slots.
func (c *checker) tagged(field, name string) {
	if !tagPattern.MatchString(name) {
		c.refuse(field, name, "needs a {hash tag} on a Redis Cluster, and with any client but a *redis.Client, so that its keys share a slot: %q",
			"{"+name+"}")
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
	err := s.process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewStringCmd(ctx, sc.whole(args)...)
		err = s.process(ctx, cmd)
	}
	if err != nil {
		return "", s.explain(sc.name, err)
	}
	return cmd.Val(), nil
}

// list runs a script that replies with a list.
func (s *redisStore) list(ctx context.Context, sc *script, args []any) ([]any, error) {
	cmd := redis.NewSliceCmd(ctx, args...)
	err := s.process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewSliceCmd(ctx, sc.whole(args)...)
		err = s.process(ctx, cmd)
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
	fix  string // what to do about it; "" if there is nothing to do but wait
	err  error
}

func (e *storeError) Error() string {
	text := fmt.Sprintf("%v: %s: %v", e.kind, e.op, e.err)
	if e.fix != "" {
		text += " (fix: " + e.fix + ")"
	}
	return text
}

func (e *storeError) Unwrap() []error { return []error{e.kind, e.err} }

// refusal is an error of Redis of which a part is left out.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes it a redis.Error.
func (refusal) RedisError() {}

// fixOf tells one misconfiguration from another: met by several scripts, it is the same.
func fixOf(err error) string {
	if e, ok := errors.AsType[*storeError](err); ok {
		return e.fix
	}
	return err.Error()
}

// refusedCall is how the prelude of scripts.lua names the command and the key that Redis refused.
var refusedCall = regexp.MustCompile(`\[([A-Z]+) (.+)\]`)

// refusedCommand is how Redis names a command that a user may not send.
var refusedCommand = regexp.MustCompile(`run the '([a-z|]+)' command`)

// explain says what an error means. A cluster whose node is gone may have moved its slots: by itself go-redis looks for them once in
// ClusterOptions.ClusterStateReloadInterval, a minute, unless a node that answers tells it.
func (s *redisStore) explain(op string, err error) error {
	var refused redis.Error
	if cluster, is := s.rdb.(*redis.ClusterClient); is && !errors.As(err, &refused) {
		cluster.ReloadState(context.Background()) // in a goroutine of its own, one at a time
	}
	explained := explain(op, err)
	if e, ok := errors.AsType[*storeError](explained); ok && e.fix == "" && e.kind == ErrUnreachable { //nolint:errorlint // our own
		e.fix = s.likely(err)
	}
	return explained
}

// What is likely wrong if client and server do not agree on TLS. Neither side reports it: a server that expects TLS closes a plain
// connection, and one that does not waits for the end of what it takes for a command.
const (
	needsTLS = "if this port of Redis expects TLS, set TLSConfig of the Redis client"
	noTLS    = "if this port of Redis does not speak TLS, remove TLSConfig of the Redis client"
)

// likely guesses what is wrong from an error that does not say so; "": no idea.
func (s *redisStore) likely(err error) string {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case s.tls && (plain || timedOut(err)):
		return noTLS
	case !s.tls && errors.Is(err, io.EOF):
		return needsTLS
	}
	return ""
}

// neverSent reports whether an error says that there was no connection, so that nothing can have reached Redis.
func neverSent(err error) bool {
	dialled, ok := errors.AsType[*net.OpError](err)
	return ok && dialled.Op == "dial"
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// silence guesses what is wrong if Redis has never answered within the bound of an attempt; "": no idea.
func (s *redisStore) silence() string { return s.likely(context.DeadlineExceeded) }

// explain tells a misconfiguration, which somebody has to fix, from everything else, which means unknown.
func explain(op string, err error) error {
	e := &storeError{kind: ErrUnreachable, op: op, err: err}
	var refused redis.Error
	if !errors.As(err, &refused) {
		if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
			e.fix = "have the TLSConfig of the Redis client trust the server's certificate (RootCAs, ServerName), or renew that"
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
		e.fix = "grant the Redis user +eval +evalsha and access to the keys and channels of the namespace"
		switch {
		case key != "":
			e.fix = fmt.Sprintf("grant the Redis user +%s and access to ~%s", strings.ToLower(command), key)
		case refusedCommand.MatchString(text): // go-redis sends some as it connects, for options of the client
			e.fix = fmt.Sprintf("grant the Redis user +%s, and what else ACLRules returns", refusedCommand.FindStringSubmatch(text)[1])
		}
	case starts("WRONGTYPE"):
		e.fix = "the key belongs to something else: choose another Namespace, or LeaderKey, or remove it"
		if key != "" {
			e.fix = fmt.Sprintf("the key %s belongs to something else: choose another Namespace, or LeaderKey, or remove it", key)
		}
	case starts("BADTERM"):
		e.fix = fmt.Sprintf("the hash %s was written by something else: repair its field token, or remove it while nobody leads", key)
	case starts("BADTASK"):
		e.fix = fmt.Sprintf("the hash %s was written by something else: repair the field, or remove the hash and with it what the task has run", key)
	case starts("BADRUNS"):
		e.fix = fmt.Sprintf("the stream %s takes no further entry, since one has the last ID that there can be: remove it", key)
	case starts("CROSSSLOT"):
		e.fix = "give Namespace and LeaderKey a {hash tag}"
	case starts("NOAUTH", "WRONGPASS"), strings.Contains(text, "AUTH <password> called without any password"),
		strings.Contains(text, "unauthenticated"): // more arguments than Redis reads of a client that has not logged in
		e.fix = "set Username and Password of the Redis client"
	case starts("ERR unknown command"):
		e.fix = "tenure needs Redis 6.2 or later with Lua scripting"
	default:
		return e
	}
	e.kind = ErrMisconfigured
	return e
}
