package tenure

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

// EnvMode says how a program finds out whether it leads.
type EnvMode string

// The modes, the words of <prefix>_ELECTION. They are the steps of a way from a static flag to an
// election: see EnvOptions.
const (
	EnvElect  EnvMode = "on"     // by an election on Redis, or, if none is named, this process leads alone; the default
	EnvStatic EnvMode = "static" // by <prefix>_STATIC_LEADER, without Redis
	EnvOff    EnvMode = "off"    // it does not lead, without Redis
)

// EnvOptions are what OptionsFromEnv has read, and may be changed before New.
//
// A program that has a static flag on one instance moves to an election in three deploys. With
// <prefix>_ELECTION=static and the flag as <prefix>_STATIC_LEADER, only the code that asks changes.
// With <prefix>_STATIC_LEADER=false everywhere, nobody leads for a moment. With
// <prefix>_ELECTION=on the election decides. Without the second deploy, the last process with the
// flag and the first elected one lead at once. The way back is the same.
type EnvOptions struct {
	Options Options
	Mode    EnvMode
	// Redis is the client by the URL, or the host, that was named; nil if none was, or if Mode does
	// not need one. It belongs to the caller, who closes it when Run has returned.
	Redis redis.UniversalClient
	// StaticLeader is the flag of EnvStatic.
	StaticLeader bool
}

// New returns the coordinator that the environment asks for: New of package tenure with the client,
// or NewStandalone without one. In EnvOff, and in EnvStatic without the flag, it never leads, and
// says WaitIneligible. A Mode that is none of the constants is an *OptionError.
func (o EnvOptions) New() (*Coordinator, error) {
	var c checker
	if oneOf(&c, "Mode", &o.Mode, EnvElect, EnvStatic, EnvOff); c.err() != nil {
		return nil, c.err()
	}
	switch {
	case o.Mode == EnvOff, o.Mode == EnvStatic && !o.StaticLeader:
		coordinator, _, err := newLocal(o.Options, false, neverExpires, nil, nil)
		return coordinator, err
	case o.Mode == EnvStatic, o.Redis == nil:
		return NewStandalone(o.Options)
	}
	return New(o.Redis, o.Options)
}

// OptionsFromEnv reads options from the environment. Names begin with prefix and "_"; an empty
// prefix, or one that is not [A-Z][A-Z0-9_]*, is refused. A variable that is empty counts as one
// that is not set. All problems are returned at once: errors.As finds each *OptionError, whose
// Field is the name of the variable.
//
//	ELECTION            on, static or off: see EnvMode
//	STATIC_LEADER       true or false
//	NAMESPACE           must be set if Redis is named
//	INSTANCE_ID, ROLE, LEADER_KEY
//	LEASE_TTL, RENEW_INTERVAL, RETRY_INTERVAL, DRIFT_MARGIN, EMPTY_HISTORY_WAIT,
//	HOLD_OFF, RESTART_GUARD, FAILOVER_MARGIN, HEARTBEAT_INTERVAL, HEARTBEAT_TTL,
//	SWEEP_INTERVAL, DRIFTED_AFTER, DOWN_AFTER, SHUTDOWN_TIMEOUT
//	                    durations such as 30s or 1m30s
//	ELIGIBLE            true or false; false is ElectionOptions.Ineligible
//	DEFAULT_ROLE        true or false; false is Options.NoDefaultRole
//	PRIORITY            a number, which may be below zero
//	PREEMPT             a duration
//	SPREAD, BY_INSTANCE_ID
//	                    true or false
//	ADDRESS, VERSION    as in RegistryOptions
//	ADDRESS_HOST, ADDRESS_PORT
//	                    in place of ADDRESS: it is http://host:port, also of an IPv6 address
//	WORKER_COUNT, WORKER_ID
//	                    a number
//	ROLES, CAPABILITIES name,name: those of RegistryOptions
//	METADATA            name=value,name=value
//	FAIL_FAST           true or false
//	REDIS_URL           redis://user:password@host:port/db, rediss:// or unix://, with the query
//	                    parameters of go-redis; with ?master_name=… by Sentinel: user:password
//	                    are then those of Sentinel, and username=… is the user of Redis, as is
//	                    a user without a password before the host
//	REDIS_CLUSTER       true: REDIS_URL or REDIS_HOST names a node of a Redis Cluster
//	REDIS_HOST, REDIS_PORT, REDIS_USERNAME, REDIS_DB, REDIS_TLS
//	                    in place of REDIS_URL; the port is 6379 unless it is set
//	REDIS_PASSWORD      of either
//	REDIS_PASSWORD_FILE in place of REDIS_PASSWORD: a file with it, such as a mounted secret, read
//	                    anew for each connection
//	REDIS_CERT_FILE, REDIS_KEY_FILE
//	                    files in PEM with the client certificate, and its key, for a Redis with TLS
//	                    that asks for one. They are read anew for each connection
//
// If neither REDIS_URL nor REDIS_HOST is set, the process is meant to run alone: Redis is nil. The
// client is made for leases: contexts bound its calls, and it waits for an answer for a tenth of
// LEASE_TTL unless the URL has a read_timeout. A client of Sentinel or of a Cluster dials a server
// once, for a second, unless the URL has a dial_timeout or dialer_retries. With TLS a server that
// Sentinel or a Cluster names has a certificate of the address that it is named by, or of the host
// in the URL. No error has a password or a URL in it. Values that are in range by themselves are
// checked against each other by EnvOptions.New.
func OptionsFromEnv(prefix string) (EnvOptions, error) {
	e := environment{prefix: prefix + "_"}
	if !envPrefix.MatchString(prefix) {
		e.refuse("prefix", prefix, "must match %s", envPrefix)
		return EnvOptions{}, e.err()
	}
	read := EnvOptions{Options: e.options(), Mode: EnvMode(e.text("ELECTION")), StaticLeader: e.flag("STATIC_LEADER")}
	oneOf(&e.checker, e.prefix+"ELECTION", &read.Mode, EnvElect, EnvStatic, EnvOff)
	var client func() redis.UniversalClient
	if read.Mode == EnvElect {
		client = e.redis(read.Options.Election.LeaseTTL)
	}
	if err := e.err(); err != nil {
		return EnvOptions{}, err
	}
	if client != nil {
		read.Redis = client()
	}
	return read, nil
}

var envPrefix = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// environment reads variables and gathers what is wrong with them.
type environment struct {
	checker
	prefix string
}

func (e *environment) text(name string) string { return os.Getenv(e.prefix + name) }

// refuseVariable refuses a variable.
func (e *environment) refuseVariable(name, reason string, args ...any) {
	e.refuse(e.prefix+name, e.text(name), reason, args...)
}

func (e *environment) flag(name string) bool { return e.flagOr(name, false) }

// flagOr is a flag with a default.
func (e *environment) flagOr(name string, otherwise bool) bool {
	text := e.text(name)
	if text == "" {
		return otherwise
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		e.refuseVariable(name, "must be true or false")
	}
	return on
}

func (e *environment) number(name string) int {
	text := e.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		e.refuseVariable(name, "must be a whole number from 0 on")
	}
	return n
}

// port reports whether a variable is the number of a port.
func (e *environment) port(name string) bool {
	n, err := strconv.ParseUint(e.text(name), 10, 16)
	if err != nil || n == 0 {
		e.refuseVariable(name, "must be a port between 1 and 65535")
		return false
	}
	return true
}

// integer reads a number of either sign.
func (e *environment) integer(name string) int {
	text := e.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		e.refuseVariable(name, "must be a whole number")
	}
	return n
}

// list reads name,name.
func (e *environment) list(name string) (names []string) {
	text := e.text(name)
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			e.refuseVariable(name, "must be name,name")
			return nil
		}
		names = append(names, part)
	}
	return names
}

func (e *environment) duration(name string) time.Duration {
	text := e.text(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		e.refuseVariable(name, "must be a duration with its unit, such as 30s or 1m30s")
	}
	return d
}

// pairs reads name=value,name=value.
func (e *environment) pairs(name string) map[string]string {
	text := e.text(name)
	if text == "" {
		return nil
	}
	pairs := make(map[string]string)
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			e.refuseVariable(name, "must be name=value,name=value")
			return nil
		}
		if _, twice := pairs[key]; twice {
			e.refuseVariable(name, "has %q twice", key)
		}
		pairs[key] = strings.TrimSpace(value)
	}
	return pairs
}

func (e *environment) options() Options {
	return Options{
		Namespace:  e.text("NAMESPACE"),
		InstanceID: e.text("INSTANCE_ID"),
		Election: ElectionOptions{
			Role:          e.text("ROLE"),
			LeaderKey:     e.text("LEADER_KEY"),
			LeaseTTL:      e.duration("LEASE_TTL"),
			RenewInterval: e.duration("RENEW_INTERVAL"),
			RetryInterval: e.duration("RETRY_INTERVAL"),
			Priority:      e.integer("PRIORITY"),
			Preempt:       e.duration("PREEMPT"),
			Spread:        e.flag("SPREAD"),
			ByInstanceID:  e.flag("BY_INSTANCE_ID"),
			Ineligible:    !e.flagOr("ELIGIBLE", true),
			Safety: SafetyOptions{
				DriftMargin:      e.duration("DRIFT_MARGIN"),
				EmptyHistoryWait: e.duration("EMPTY_HISTORY_WAIT"),
				HoldOff:          e.duration("HOLD_OFF"),
				RestartGuard:     e.duration("RESTART_GUARD"),
				FailoverMargin:   e.duration("FAILOVER_MARGIN"),
			},
		},
		Registry: RegistryOptions{
			HeartbeatInterval: e.duration("HEARTBEAT_INTERVAL"),
			HeartbeatTTL:      e.duration("HEARTBEAT_TTL"),
			SweepInterval:     e.duration("SWEEP_INTERVAL"),
			DriftedAfter:      e.duration("DRIFTED_AFTER"),
			DownAfter:         e.duration("DOWN_AFTER"),
			WorkerCount:       e.number("WORKER_COUNT"),
			WorkerID:          e.number("WORKER_ID"),
			Address:           e.address(),
			Version:           e.text("VERSION"),
			Roles:             e.list("ROLES"),
			Capabilities:      e.list("CAPABILITIES"),
			Metadata:          e.pairs("METADATA"),
		},
		ShutdownTimeout: e.duration("SHUTDOWN_TIMEOUT"),
		FailFast:        e.flag("FAIL_FAST"),
		NoDefaultRole:   !e.flagOr("DEFAULT_ROLE", true),
	}
}

// address reads where other processes reach this one. A platform that gives the IP address alone
// cannot say whether that needs brackets.
func (e *environment) address() string {
	host, port := e.text("ADDRESS_HOST"), e.text("ADDRESS_PORT")
	if host == "" && port == "" {
		return e.text("ADDRESS")
	}
	for _, other := range []string{"ADDRESS_HOST", "ADDRESS_PORT"} {
		switch {
		case e.text("ADDRESS") != "":
			e.refuseVariable(other, "must not be set beside %sADDRESS", e.prefix)
		case e.text(other) == "":
			e.refuseVariable(other, "must be set: %sADDRESS_HOST and %sADDRESS_PORT go together", e.prefix, e.prefix)
		}
	}
	if !isHost(host) {
		e.refuseVariable("ADDRESS_HOST", "must be the name or the IP address of a host, without scheme, port and brackets")
	}
	if port != "" {
		e.port("ADDRESS_PORT")
	}
	return "http://" + net.JoinHostPort(host, port)
}

// redis reads where Redis is. It returns nil if none is named, or if something is wrong.
func (e *environment) redis(ttl time.Duration) func() redis.UniversalClient {
	address := e.text("REDIS_URL")
	cluster := e.flag("REDIS_CLUSTER")
	parts := []string{"REDIS_HOST", "REDIS_PORT", "REDIS_USERNAME", "REDIS_DB", "REDIS_TLS"}
	switch {
	case address == "" && e.text("REDIS_HOST") != "":
		if address = e.compose(); address == "" {
			return nil
		}
	case address == "":
		for _, name := range append(parts, "REDIS_PASSWORD", "REDIS_PASSWORD_FILE", "REDIS_CLUSTER", "REDIS_CERT_FILE", "REDIS_KEY_FILE") {
			if e.text(name) != "" {
				e.refuse(e.prefix+name, hidden, "is set, but neither %sREDIS_URL nor %sREDIS_HOST", e.prefix, e.prefix)
			}
		}
		return nil
	default:
		for _, name := range parts {
			if e.text(name) != "" {
				e.refuseVariable(name, "must not be set beside %sREDIS_URL", e.prefix)
			}
		}
	}
	if e.text("NAMESPACE") == "" {
		e.refuseVariable("NAMESPACE", "must be set: the name of the service")
	}
	parsed, err := url.Parse(address)
	if err != nil { // which would show the URL
		e.refuse(e.prefix+"REDIS_URL", hidden, "must be a URL: redis://user:password@host:port/db")
		return nil
	}
	if database := strings.Trim(parsed.Path, "/"); cluster && database != "" && database != "0" {
		named := e.prefix + "REDIS_URL"
		if e.text("REDIS_URL") == "" {
			named = e.prefix + "REDIS_DB"
		}
		e.refuse(named, hidden, "must not name a database with %sREDIS_CLUSTER: a Redis Cluster has only 0", e.prefix)
		return nil
	}
	if name := tooManyConnections(parsed.Query()); name != "" {
		e.refuse(e.prefix+"REDIS_URL", hidden, "must have a %s between 0 and %d", name, maxConnections)
		return nil
	}
	certificate, ok := e.certificate(parsed.Scheme == "rediss")
	password, inFile, fine := e.password()
	if !ok || !fine {
		return nil
	}
	wait := orDefault(ttl, 30*time.Second) / 10
	if parsed.Query().Has("read_timeout") {
		wait = 0
	}
	client, err := newClient(parsed, address, cluster, password, inFile, wait, certificate)
	if err != nil || strings.Contains(address, "#") { // a part of a password that was not escaped may stand in its text, or be the host
		e.refuse(e.prefix+"REDIS_URL", hidden, "must be redis://, rediss:// or unix://, a number as the database, and query parameters that go-redis "+
			"knows; characters of the password that mean something in a URL must be escaped, or the password be in %sREDIS_PASSWORD", e.prefix)
		return nil
	}
	return client
}

// password finds the password that stands in no URL: a text, or what returns what a file has;
// false: something is wrong with it.
func (e *environment) password() (text string, inFile func() string, ok bool) {
	text, file := e.text("REDIS_PASSWORD"), e.text("REDIS_PASSWORD_FILE")
	switch {
	case file == "":
		return text, nil, true
	case text != "":
		e.refuseVariable("REDIS_PASSWORD_FILE", "must not be set beside %sREDIS_PASSWORD", e.prefix)
		return "", nil, false
	}
	inFile, err := readPassword(file)
	if err != nil {
		e.refuseVariable("REDIS_PASSWORD_FILE", "must be a file with the password: %v", err)
	}
	return "", inFile, err == nil
}

// readPassword reads the file with a password, without the end of its line: at once, and whenever
// the function is called, since passwords are replaced while a program runs. While the file cannot
// be read, or is empty, the last password counts.
func readPassword(file string) (func() string, error) {
	var last atomic.Pointer[string]
	read := func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		password := strings.TrimRight(string(text), "\r\n")
		if password == "" {
			return errors.New("it is empty")
		}
		last.Store(&password)
		return nil
	}
	return func() string {
		_ = read()
		return *last.Load()
	}, read()
}

// certificate finds the client certificate that a server with TLS may ask for; false: something is
// wrong with it.
func (e *environment) certificate(secured bool) (clientCertificate, bool) {
	cert, key := e.text("REDIS_CERT_FILE"), e.text("REDIS_KEY_FILE")
	switch {
	case cert == "" && key == "":
		return nil, true
	case cert == "":
		e.refuseVariable("REDIS_CERT_FILE", "must be set: a certificate and its key go together")
	case key == "":
		e.refuseVariable("REDIS_KEY_FILE", "must be set: a certificate and its key go together")
	case !secured:
		e.refuseVariable("REDIS_CERT_FILE", "is for TLS: rediss:// in %sREDIS_URL, or %sREDIS_TLS", e.prefix, e.prefix)
	default:
		read, err := readCertificate(cert, key)
		if err != nil {
			e.refuseVariable("REDIS_CERT_FILE", "must be a certificate in PEM, and %sREDIS_KEY_FILE its key: %v", e.prefix, err)
		}
		return read, err == nil
	}
	return nil, false
}

// maxConnections is how many connections a URL may ask for. Far beyond that go-redis panics, or
// takes all memory.
const maxConnections = 1_000_000

// tooManyConnections names a parameter of a URL over which go-redis would panic; "": there is none.
func tooManyConnections(query url.Values) string {
	for _, name := range []string{"pool_size", "min_idle_conns", "max_active_conns"} {
		for _, text := range query[name] { // of several go-redis takes the last
			if n, err := strconv.Atoi(text); err == nil && (n > maxConnections || n < 0 && name == "pool_size") {
				return name
			}
		}
	}
	return ""
}

// hidden stands for what an error must not show.
const hidden = "…"

// compose is the URL of a host; "": that is none.
func (e *environment) compose() string {
	host := e.text("REDIS_HOST")
	if !isHost(host) {
		e.refuse(e.prefix+"REDIS_HOST", hidden, "must be the name or the IP address of a host, without scheme and port: %sREDIS_PORT is the port", e.prefix)
		return ""
	}
	port := "6379"
	if text := e.text("REDIS_PORT"); text != "" && e.port("REDIS_PORT") {
		port = text
	}
	u := url.URL{Scheme: "redis", Host: net.JoinHostPort(host, port)}
	if e.flag("REDIS_TLS") {
		u.Scheme = "rediss"
	}
	if name := e.text("REDIS_USERNAME"); name != "" {
		u.User = url.User(name)
	}
	if db := e.number("REDIS_DB"); db != 0 {
		u.Path = "/" + strconv.Itoa(db)
	}
	return u.String()
}

// isHost reports whether a text may be the name or the IP address of a host, without anything else.
func isHost(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil || !strings.ContainsAny(text, "/?#@[]:%\\\"<> ")
}

// dialTimeout is how long a client of Sentinel or of a Cluster waits for a server to be connected:
// if one is gone without a sign, another one has to be asked before a lease ends.
const dialTimeout = time.Second

// newClient reads a URL with the parser that fits, and returns what makes the client.
func newClient(
	u *url.URL, address string, cluster bool, password string, inFile func() string, wait time.Duration, certificate clientCertificate,
) (func() redis.UniversalClient, error) {
	type credentials = func() (user, password string)
	set := func(timeout *time.Duration, bounded *bool, user, secret *string, anew *credentials, config *tls.Config) {
		*bounded = true
		if config != nil {
			config.GetClientCertificate = certificate
		}
		if wait > 0 {
			*timeout = wait
		}
		if password != "" {
			*secret = password
		}
		if inFile != nil {
			*anew = func() (string, string) { return *user, inFile() }
		}
	}
	once := func(opts any) { // by default a silent server is dialed five times before another one is asked
		if !u.Query().Has("dialer_retries") {
			clientopts.Set(opts, "DialerRetries", 1)
		}
	}
	switch {
	case cluster:
		opts, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, err
		}
		set(&opts.ReadTimeout, &opts.ContextTimeoutEnabled, &opts.Username, &opts.Password, &opts.CredentialsProvider, opts.TLSConfig)
		once(opts)
		opts.DialTimeout = cmp.Or(opts.DialTimeout, dialTimeout)
		opts.Dialer = dialNamed(opts.TLSConfig, opts.DialTimeout)
		return func() redis.UniversalClient { return redis.NewClusterClient(opts) }, nil
	case u.Query().Has("master_name"):
		opts, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, err
		}
		set(&opts.ReadTimeout, &opts.ContextTimeoutEnabled, &opts.Username, &opts.Password, &opts.CredentialsProvider, opts.TLSConfig)
		if opts.SentinelPassword == "" && opts.Username == "" { // nobody logs in to Sentinel without a password
			opts.Username, opts.SentinelUsername = opts.SentinelUsername, ""
		}
		once(opts)
		// DialTimeout is for all of it: to ask Sentinel for the master, and to dial that. go-redis
		// stays with a Sentinel that is silent as long as DialTimeout ends before the dial of it
		// does.
		opts.Dialer = dialNamed(opts.TLSConfig, cmp.Or(opts.DialTimeout, dialTimeout))
		return func() redis.UniversalClient { return redis.NewFailoverClient(opts) }, nil
	}
	opts, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	set(&opts.ReadTimeout, &opts.ContextTimeoutEnabled, &opts.Username, &opts.Password, &opts.CredentialsProvider, opts.TLSConfig)
	return func() redis.UniversalClient { return redis.NewClient(opts) }, nil
}
