package redisstore

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/store"
)

// script is one section of scripts.lua.
type script struct {
	name, source, sha string

	digest any // sha, boxed once
}

// Scripts holds every script of scripts.lua, one field a section.
type Scripts struct {
	acquire  *script
	renew    *script
	renewAll *script
	release  *script
	leader   *script
	witness  *script

	forgetRole *script

	openTask    *script
	planTask    *script
	claimTask   *script
	retryTask   *script
	finishTask  *script
	readTask    *script
	pauseTask   *script
	cancelTask  *script
	forgetTask  *script
	triggerTask *script

	beat       *script
	deregister *script
	look       *script
	sweep      *script
	adopt      *script
	scan       *script
	readLog    *script
	losses     *script
	count      *script
	instance   *script

	readMetrics *script
	aggregate   *script

	sendCommand  *script
	readCommands *script
	startCommand *script
	endCommand   *script
	lookCommand  *script
	noteCommand  *script
}

// MustLoad is Load for a file that is part of the program.
func MustLoad(source string) *Scripts {
	loaded, err := Load(source)
	if err != nil {
		panic(err) // the file is part of this package
	}
	return loaded
}

// Load reads the sections into the typed fields. A section without a field, and a field without a
// section, is an error.
func Load(source string) (*Scripts, error) {
	var loaded Scripts
	fields := map[string]**script{
		"acquire": &loaded.acquire, "renew": &loaded.renew, "renew_all": &loaded.renewAll, "release": &loaded.release, "leader": &loaded.leader,
		"witness": &loaded.witness, "forget_role": &loaded.forgetRole,
		"open_task": &loaded.openTask, "plan_task": &loaded.planTask, "claim_task": &loaded.claimTask,
		"retry_task": &loaded.retryTask, "finish_task": &loaded.finishTask, "read_task": &loaded.readTask, "pause_task": &loaded.pauseTask,
		"cancel_task":  &loaded.cancelTask,
		"forget_task":  &loaded.forgetTask,
		"trigger_task": &loaded.triggerTask,

		"beat": &loaded.beat, "deregister": &loaded.deregister, "look": &loaded.look, "sweep": &loaded.sweep,
		"adopt": &loaded.adopt, "scan": &loaded.scan, "read_log": &loaded.readLog, "losses": &loaded.losses, "count": &loaded.count, "instance": &loaded.instance,
		"read_metrics": &loaded.readMetrics, "aggregate": &loaded.aggregate,
		"send_command": &loaded.sendCommand, "read_commands": &loaded.readCommands, "start_command": &loaded.startCommand,
		"end_command": &loaded.endCommand, "look_command": &loaded.lookCommand, "note_command": &loaded.noteCommand,
	}
	parts := strings.Split(source, "\n--@ ")
	var preludes []declaration // a later one adds to those before, for the sections behind it
	shortcuts := make(map[string][]string)
	for _, part := range parts[1:] {
		name, body, _ := strings.Cut(part, "\n")
		if strings.HasPrefix(name, "prelude ") {
			more, err := declarations(body)
			if err != nil {
				return nil, err
			}
			preludes = append(preludes, more...)
			continue
		}
		if of, is := strings.CutPrefix(name, "shortcut "); is {
			for name := range strings.SplitSeq(of, ", ") {
				shortcuts[name] = append(shortcuts[name], body)
			}
			continue
		}
		field, known := fields[name]
		if !known || *field != nil {
			return nil, fmt.Errorf("tenure: scripts.lua: section %q has no field, or is there twice", name)
		}
		*field = newScript(name, before(preludes, shortcuts[name], body), body)
		delete(shortcuts, name)
	}
	for name, field := range fields {
		if *field == nil {
			return nil, fmt.Errorf("tenure: scripts.lua: section %q is missing", name)
		}
	}
	for name := range shortcuts {
		return nil, fmt.Errorf("tenure: scripts.lua: shortcut %q is of no section behind it", name)
	}
	return &loaded, nil
}

// Digests returns the digest of every script, by its name.
func (s *Scripts) Digests() map[string]string {
	digests := make(map[string]string)
	for _, sc := range s.all() {
		digests[sc.name] = sc.sha
	}
	return digests
}

func (s *Scripts) all() []*script {
	return []*script{
		s.acquire, s.renew, s.renewAll, s.release, s.leader, s.witness, s.forgetRole, s.openTask, s.planTask, s.claimTask, s.retryTask, s.finishTask, s.readTask, s.pauseTask,
		s.cancelTask, s.forgetTask, s.triggerTask, s.beat, s.deregister, s.look, s.sweep, s.adopt, s.scan, s.readLog, s.losses, s.count, s.instance, s.readMetrics, s.aggregate,
		s.sendCommand, s.readCommands, s.startCommand, s.endCommand, s.lookCommand, s.noteCommand,
	}
}

// newScript makes a section the body of a function, so that a refusal anywhere in it becomes the
// error reply of the script.
func newScript(name, prelude, body string) *script {
	source := prelude + "local function body()\n" + body + `end
local ok, reply = pcall(body)
if ok then return reply end
if type(reply) == 'table' then return { err = reply.text } end
error(reply, 0)
`
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	return &script{name: name, source: source, sha: sha, digest: sha}
}

// Store is the Redis side of everything: the only code that knows Redis. It is safe for concurrent
// use.
type Store struct {
	rdb      redis.UniversalClient
	keys     store.Keys
	scripts  *Scripts
	renewals *batches
	elects   *batches // acquires and releases, which wait for no renewals
	carried  *batches // heartbeats that take an acquire along
	tagged   *tagged
	bounded  *boundedClients
	tasks    *batches // calls of tasks
	id       string
	secret   func() string
	spread   bool // the keys may lie on several nodes: a Redis Cluster, or a client of which that is not known
	tls      bool // the client speaks TLS
	calls    *callHook
}

// callHook is called with each script call that has ended.
type callHook struct {
	ended    atomic.Pointer[func(script string, took time.Duration, err error)]
	answered atomic.Bool // Redis has answered a call
}

// heard notes the end of a call.
func (h *callHook) heard(err error) {
	if h.answered.Load() {
		return
	}
	if _, refused := store.AsType[redis.Error](err); err == nil || refused {
		h.answered.Store(true)
	}
}

// hasAnswered reports whether Redis has answered a call.
func (h *callHook) hasAnswered() bool { return h != nil && h.answered.Load() }

// OnCall has ended called with each script call that has ended, in the goroutine of the call, with
// its error, if it has failed. It replaces the function of before.
func (s *Store) OnCall(ended func(script string, took time.Duration, err error)) {
	s.calls.ended.Store(&ended)
}

// begin returns what a call that begins now has to call at its end.
func (h *callHook) begin(sc *script) func(error) {
	ended := h.ended.Load()
	if ended == nil {
		return func(error) {}
	}
	began := time.Now()
	return func(err error) { (*ended)(sc.name, time.Since(began), err) }
}

// New returns a store that speaks by a client and runs these scripts. Of a nil client nothing may
// be asked. secret draws texts that nobody can guess.
func New(rdb redis.UniversalClient, sections *Scripts, namespace, id string, secret func() string) *Store {
	s := &Store{
		rdb: rdb, keys: store.Keys(namespace), scripts: sections, renewals: newBatches(maxPipelines), elects: newBatches(maxPipelines), carried: newBatches(maxPipelines), tagged: new(tagged), bounded: new(boundedClients), tasks: newBatches(maxTaskSends), id: id, secret: secret,
		calls: new(callHook),
	}
	switch client := rdb.(type) {
	case nil, *redis.Ring: // neither can serve
	case *redis.Client:
		s.tls = client != nil && client.Options().TLSConfig != nil
	case *redis.ClusterClient:
		s.spread = client != nil
		s.tls = client != nil && client.Options().TLSConfig != nil
	default: // an AutoPipeliner, or a wrapper of the application's own: either may stand before a cluster
		s.spread = true
	}
	return s
}

// IsSpread reports whether the keys may lie on several nodes: on a Redis Cluster, or with a client
// of which that is not known.
func (s *Store) IsSpread() bool { return s.spread }

// Address is the host and port of the server that the client speaks to. "": it may speak to several
// (Sentinel, Cluster), it speaks over a socket of this machine, or that is not known.
func (s *Store) Address() string {
	client, ok := s.rdb.(*redis.Client)
	if !ok || client == nil {
		return ""
	}
	o := client.Options()
	if host, _, err := net.SplitHostPort(o.Addr); o.Network != "tcp" || err != nil || host == "" { // that of a failover client is no address
		return ""
	}
	return o.Addr
}

// args builds the arguments of one script call: keys, then ARGV. Their count is known to the
// caller, so that one slice serves.
func (s *script) args(keyCount string, room int) []any {
	args := make([]any, 0, 3+room)
	return append(args, "evalsha", s.digest, keyCount)
}

// newCmd makes a command of the kind that reads the reply of a script.
type newCmd func(ctx context.Context, args []any) redis.Cmder

// newText is the command of a script that replies with one line.
func newText(ctx context.Context, args []any) redis.Cmder { return redis.NewStringCmd(ctx, args...) }

// newList is the command of a script that replies with a list.
func newList(ctx context.Context, args []any) redis.Cmder { return redis.NewSliceCmd(ctx, args...) }

// newAny is the command of a script that replies with either.
func newAny(ctx context.Context, args []any) redis.Cmder { return redis.NewCmd(ctx, args...) }

// text runs a script that replies with one line.
func (s *Store) text(ctx context.Context, sc *script, args []any) (string, error) {
	cmd, err := s.call(ctx, sc, args, newText)
	if err != nil {
		return "", err
	}
	return cmd.(*redis.StringCmd).Val(), nil
}

// list runs a script that replies with a list.
func (s *Store) list(ctx context.Context, sc *script, args []any) ([]any, error) {
	cmd, err := s.call(ctx, sc, args, newList)
	if err != nil {
		return nil, err
	}
	return cmd.(*redis.SliceCmd).Val(), nil
}

// call runs a script, and is observed.
func (s *Store) call(ctx context.Context, sc *script, args []any, newCmd newCmd) (_ redis.Cmder, err error) {
	ended := s.calls.begin(sc)
	defer func() { ended(err) }()
	return s.alone(ctx, sc, args, newCmd)
}

// alone runs a script by itself, from its source if the server does not know it.
func (s *Store) alone(ctx context.Context, sc *script, args []any, newCmd newCmd) (redis.Cmder, error) {
	cmd := newCmd(ctx, args)
	err := s.process(ctx, cmd)
	if unknownScript(err) {
		cmd = newCmd(ctx, sc.whole(args))
		err = s.process(ctx, cmd)
	}
	if err != nil {
		return nil, s.explain(sc.name, err)
	}
	return cmd, nil
}

// unknownScript reports whether a server has said that it does not know the script.
func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// whole is the same call with the source instead of its digest, for a server that does not know the
// script.
func (s *script) whole(args []any) []any {
	return append([]any{"eval", s.source}, args[2:]...)
}

// refusal is an error of Redis of which a part is left out.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes it a redis.Error.
func (refusal) RedisError() {}

// refusedCall is how the prelude of scripts.lua names the command and the key that Redis refused.
var refusedCall = regexp.MustCompile(`\[([A-Z]+) (.+)\]`)

// refusedCommand is how Redis names a command that a user may not send.
var refusedCommand = regexp.MustCompile(`run the '([a-z|]+)' command`)

// unknownBeside is how servers and proxies say that they do not know a command which every Redis
// has, and without which an election goes on.
var unknownBeside = regexp.MustCompile("(?i)^(?:ERR )?un(?:known|supported) command [`'\"]?(subscribe|publish|pubsub|info)\\b")

// unknownWithin is how a server says it within a script.
const unknownWithin = "Unknown Redis command called from"

// explain says what an error means. If a cluster may have moved its slots, go-redis is told to look
// for them: by itself it looks once in ClusterOptions.ClusterStateReloadInterval, a minute, unless
// a node answers MOVED.
func (s *Store) explain(op string, err error) error {
	if cluster, is := s.rdb.(*redis.ClusterClient); is && mayHaveMoved(err) {
		cluster.ReloadState(context.Background()) // in a goroutine of its own, one at a time
	}
	if fix := s.otherClient(err); fix != "" {
		return &store.Error{Kind: store.ErrMisconfigured, Op: op, Err: err, Fix: fix}
	}
	explained := explain(op, err)
	if e, ok := store.AsType[*store.Error](explained); ok && e.Fix == "" && e.Kind == store.ErrUnreachable { //nolint:errorlint // our own
		e.Fix = s.likely(err)
	}
	return explained
}

// mayHaveMoved reports whether a slot of a cluster may be elsewhere after such an error of the node
// that had it: the node is gone, or it answers CLUSTERDOWN since it has left the cluster, or is cut
// off from the other nodes. A node that answers nonsense is there: to ask it for the slots would
// have go-redis read nonsense in a goroutine of its own, and a panic there ends the process.
func mayHaveMoved(err error) bool {
	var refused redis.Error
	if errors.As(err, &refused) {
		return redis.HasErrorPrefix(err, "CLUSTERDOWN")
	}
	return !isNonsense(err)
}

// namesNodes is what is wrong if a node of a Cluster lists slots without the addresses of
// their nodes, which go-redis takes for no answer.
const namesNodes = "have each node of the Cluster name addresses: cluster-preferred-endpoint-type must be ip or hostname, and not unknown-endpoint"

// What is wrong if the client is of another kind than the Redis.
const (
	isCluster = "Redis is a Cluster: give tenure a client of redis.NewClusterClient, or set REDIS_CLUSTER to true in the environment, and a Namespace with a {hash tag}"
	noCluster = "Redis is no Cluster: give tenure a client of redis.NewClient, or unset REDIS_CLUSTER in the environment"
)

// withoutCluster is how servers that are no Cluster answer CLUSTER SLOTS: Redis, Dragonfly, and
// those that do not know the command.
var withoutCluster = regexp.MustCompile("(?i)cluster support disabled|cluster is disabled|cluster mode is not enabled|unknown command [`'\"]?cluster\\b")

// otherClient says that Redis has to be asked by a client of another kind; "": not because of this
// error. A client of one server does not go where the node of a cluster sends it.
func (s *Store) otherClient(err error) string {
	switch s.rdb.(type) {
	case *redis.Client:
		if !s.spread && redis.HasErrorPrefix(err, "MOVED") { // else it is that of one node
			return isCluster
		}
	case *redis.ClusterClient:
		if withoutCluster.MatchString(err.Error()) {
			return noCluster
		}
		if errors.Is(err, redis.Nil) { // no command of ours is answered so
			return namesNodes
		}
	}
	return ""
}

// What is likely wrong if client and server do not agree on TLS. Neither side reports it: a server
// that expects TLS closes a plain connection, and one that does not waits for the end of what it
// takes for a command.
const (
	needsTLS = "if this port of Redis expects TLS, set TLSConfig of the Redis client, or write rediss:// in its URL; else ask Redis by redis-cli from this machine why it ends " +
		"connections: it is in protected mode, or has as many clients as its maxclients allows"
	noTLS = "if this port of Redis does not speak TLS, remove TLSConfig of the Redis client, or write redis:// in its URL"
)

// endsConnections is what is likely wrong if a connection ends before Redis has read from it. A
// server with as many clients as it may have, or without a password for clients of other machines,
// gives its reason and closes, so that the client's first write fails and nobody reads the reason.
const endsConnections = "if Redis ends new connections at once, ask it by redis-cli from this machine for the reason: it has as many clients as its maxclients allows, or it has no password and is in " +
	"protected mode, in which it takes clients of its own machine only"

// inProtectedMode is what is wrong if the client has read that.
const inProtectedMode = "Redis has no password and is in protected mode, in which it takes clients of its own machine only: set one, and Password of the Redis client, or protected-mode no"

// asksForCertificate is what is wrong if a server ends the handshake over the client's certificate.
const asksForCertificate = "give the Redis client a certificate that Redis trusts, since it asks for one (tls-auth-clients): Certificates in its TLSConfig, or REDIS_CERT_FILE and " +
	"REDIS_KEY_FILE in the environment"

// sentinelsSilent is in the error of go-redis if no Sentinel has named the master.
const sentinelsSilent = "all sentinels specified in configuration are unreachable"

// sentinelsError is that error in one line, with what several Sentinels say alike once. go-redis
// has a line for each of them.
type sentinelsError struct{ error }

func (e sentinelsError) Error() string {
	head, said, _ := strings.Cut(e.error.Error(), sentinelsSilent)
	lines := strings.Split(strings.TrimPrefix(said, ": "), "\n")
	slices.Sort(lines)
	return strings.TrimSuffix(head+sentinelsSilent+": "+strings.Join(slices.Compact(lines), "; "), ": ")
}

func (e sentinelsError) Unwrap() error { return e.error }

// sentinelRights are what go-redis needs of a Sentinel with users.
const sentinelRights = "+sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe +ping &+switch-master &+replica-reconf-done"

// ofSentinel is what is wrong if the Sentinels have answered, but none has named the master; "":
// they have not, or it is not known. It goes by the text, since old versions of go-redis have that
// only. lasting is false if it may be over by itself.
func ofSentinel(err error) (fix string, lasting bool) {
	text := err.Error()
	says := func(word string) bool { return strings.Contains(text, word) }
	switch {
	case !says(sentinelsSilent):
		return "", false
	case says("NOAUTH"), says("WRONGPASS"), says("AUTH <password> called without any password"):
		return "set SentinelUsername and SentinelPassword of the Redis client, or user:password in its URL, or REDIS_SENTINEL_PASSWORD in the environment, to what the Sentinels ask for", true
	case says("NOPERM"):
		return "grant the user of Sentinel, and not that of Redis, " + sentinelRights, true
	case says("unknown command"):
		return "the addresses must be those of Sentinels: a client that asks Redis itself has no MasterName, and no master_name in its URL", true
	case says(redis.Nil.Error()): // one that has just been set up may be told yet
		return "no Sentinel knows a master of that name: set MasterName of the Redis client, or master_name in its URL, to what the Sentinels call it", false
	}
	return "", false
}

// likely guesses what is wrong from an error that does not say so; "": no idea. A Redis that has
// answered speaks TLS, or does not, as the client does: it hangs, or has gone.
func (s *Store) likely(err error) string {
	_, plain := store.AsType[tls.RecordHeaderError](err)
	answered := s.calls.hasAnswered()
	switch {
	case s.tls && (plain || timedOut(err) && !answered):
		return noTLS
	case !s.tls && errors.Is(err, io.EOF) && !answered:
		return needsTLS
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), strings.Contains(err.Error(), "max number of clients reached"):
		return endsConnections
	}
	return ""
}

func timedOut(err error) bool {
	timeout, ok := store.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// Silence guesses what is wrong if Redis has never answered within the bound of an attempt; "": no
// idea.
func (s *Store) Silence() string { return s.likely(context.DeadlineExceeded) }

// explain tells a misconfiguration, which somebody has to fix, from everything else, which means
// unknown.
func explain(op string, err error) error {
	if strings.Contains(err.Error(), sentinelsSilent) {
		err = sentinelsError{err}
	}
	e := &store.Error{Kind: store.ErrUnreachable, Op: op, Err: err}
	if fix, lasting := ofSentinel(err); fix != "" {
		if e.Fix = fix; lasting {
			e.Kind = store.ErrMisconfigured
		}
		return e
	}
	var refused redis.Error
	if !errors.As(err, &refused) {
		if _, untrusted := store.AsType[*tls.CertificateVerificationError](err); untrusted {
			e.Fix = "have the TLSConfig of the Redis client trust the server's certificate (RootCAs, ServerName; REDIS_CA_FILE in the environment), or renew that"
		}
		if text := err.Error(); strings.Contains(text, "remote error: tls:") && strings.Contains(text, "certificate") {
			e.Fix = asksForCertificate
		}
		return e
	}
	text := refused.Error()
	if told, _, more := strings.Cut(text, ", with args beginning with:"); more { // a nonce may be among them
		text, e.Err = told, refusal(told)
	}
	if told, _, more := strings.Cut(text, ". "); more && strings.HasPrefix(text, "DENIED") { // a page of advice follows
		text, e.Err = told, refusal(told)
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
		e.Refused = true
		e.Fix = "grant the Redis user +eval +evalsha and access to the keys and channels of the namespace"
		switch {
		case key != "":
			e.Fix = fmt.Sprintf("grant the Redis user +%s and access to ~%s", strings.ToLower(command), key)
		case refusedCommand.MatchString(text): // go-redis sends some as it connects, for options of the client
			e.Fix = fmt.Sprintf("grant the Redis user +%s, and what else ACLRules returns", refusedCommand.FindStringSubmatch(text)[1])
		}
	case starts("WRONGTYPE"):
		e.Spoilt = true
		e.Fix = "the key belongs to something else: choose another Namespace, or LeaderKey, or remove it"
		if key != "" {
			e.Fix = fmt.Sprintf("the key %s belongs to something else: choose another Namespace, or LeaderKey, or remove it", key)
		}
	case starts("BADTERM"):
		e.Spoilt = true
		e.Fix = fmt.Sprintf("the hash %s was written by something else: repair its field token, or remove it while nobody leads", key)
	case starts("BADTASK"):
		e.Fix = fmt.Sprintf("the hash %s was written by something else: repair the field, or remove the hash and with it what the task has run", key)
	case starts("BADRUNS") && !strings.Contains(text, unknownWithin):
		e.Fix = fmt.Sprintf("the stream %s takes no further entry, since one has the last ID that there can be: remove it", key)
	case starts("MISCONF"):
		e.Fix = "see in the log of Redis why it cannot save its data, mostly a full disk: it refuses every write until it can"
		return e
	case starts("OOM"):
		e.Fix = "give Redis more memory (maxmemory), or remove what is not needed"
		return e
	case starts("NOREPLICAS"):
		e.Fix = "start the replicas of Redis, or set min-replicas-to-write to as many as there are to be"
		return e
	case starts("READONLY", "MASTERDOWN"):
		e.Fix = "if this lasts, let the Redis client connect to the master: this is a replica"
		return e
	case starts("TRYAGAIN", "CLUSTERDOWN"):
		e.Fix = "if this lasts, see what redis-cli --cluster check says: a slot of the Cluster is half moved, or has no master"
		return e
	case starts("CROSSSLOT"):
		e.Fix = "give Namespace and LeaderKey a {hash tag}"
	case starts("NOAUTH", "WRONGPASS", "ERR invalid password"), strings.Contains(text, "AUTH <password> called without any password"),
		strings.Contains(text, "unauthenticated"): // more arguments than Redis reads of a client that has not logged in
		e.Fix = "set Username and Password of the Redis client, or REDIS_PASSWORD in the environment"
	case starts("DENIED"):
		e.Fix = inProtectedMode
	case unknownBeside.MatchString(text):
		e.Fix = fmt.Sprintf("connect to a Redis that has %s: a proxy before it does not pass it on, or rename-command has removed it", strings.ToUpper(unknownBeside.FindStringSubmatch(text)[1]))
	case starts("ERR unknown command"), strings.Contains(text, unknownWithin):
		e.Fix = "tenure needs Redis 6.2 or later with Lua scripting, and no command renamed (rename-command); a Sentinel must be asked for its master (MasterName, or master_name in the URL)"
	default:
		return e
	}
	e.Kind = store.ErrMisconfigured
	return e
}
