package tenure

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

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
		for _, name := range slices.Concat(parts, []string{"REDIS_CLUSTER", "REDIS_PASSWORD", "REDIS_PASSWORD_FILE", "REDIS_CERT_FILE", "REDIS_KEY_FILE", "REDIS_CA_FILE"}, ofSentinel, misnomers) {
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
	if e.endsLines() {
		return nil
	}
	if severalHosts(address) {
		e.refuse(e.prefix+"REDIS_URL", hidden, "must have one host; further ones of Sentinel (?master_name=…) or of a Redis Cluster are parameters: &addr=host:port")
		return nil
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
	if parsed.Query().Has("addr") && !cluster && !parsed.Query().Has("master_name") {
		e.refuse(e.prefix+"REDIS_URL", hidden, "may name further servers (addr=…) with ?master_name=… of Sentinel or with %sREDIS_CLUSTER, and not otherwise", e.prefix)
		return nil
	}
	if name := tooManyConnections(parsed.Query()); name != "" {
		e.refuse(e.prefix+"REDIS_URL", hidden, "must have a %s between 0 and %d", name, maxConnections)
		return nil
	}
	by := e.access(parsed)
	wait := orDefault(ttl, 30*time.Second) / 10
	if parsed.Query().Has("read_timeout") {
		wait = 0
	}
	client, err := newClient(parsed, address, cluster, by, wait)
	if err != nil || strings.Contains(address, "#") { // a part of a password that was not escaped may stand in its text, or be the host
		e.refuse(e.prefix+"REDIS_URL", hidden, "must be redis://, rediss:// or unix://, a number as the database, and query parameters that go-redis "+
			"knows; characters of the password that mean something in a URL must be escaped, or the password be in %sREDIS_PASSWORD", e.prefix)
		return nil
	}
	return client
}

// misnomers are what other programs call REDIS_URL or REDIS_HOST. If one were passed over, each
// process would take itself to be the only one, and lead.
var misnomers = []string{"REDIS_ADDR", "REDIS_ADDRESS", "REDIS_ADDRS", "REDIS_URI", "REDIS_DSN"}

// ofSecrets are the variables that a Secret may have.
var ofSecrets = []string{"REDIS_URL", "REDIS_HOST", "REDIS_USERNAME", "REDIS_PASSWORD", "REDIS_SENTINEL_USERNAME", "REDIS_SENTINEL_PASSWORD"}

// endsLines refuses those that end with the end of a line, which nobody sees: go-redis would say of
// a URL that it is none, and Redis of a password that it is wrong.
func (e *environment) endsLines() (refused bool) {
	for _, name := range ofSecrets {
		if strings.HasSuffix(e.text(name), "\n") {
			e.refuse(e.prefix+name, hidden, "must not end with the end of a line: a Secret that was made of a file, or by echo, has one")
			refused = true
		}
	}
	return refused
}

// severalHosts reports whether a URL lists hosts, as other clients of Redis have it.
func severalHosts(address string) bool {
	_, rest, _ := strings.Cut(address, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return strings.Contains(rest[strings.LastIndex(rest, "@")+1:], ",")
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

// dialTimeout is how long a client of Sentinel or of a Cluster waits for a server to be connected:
// if one is gone without a sign, another one has to be asked before a lease ends.
const dialTimeout = time.Second

// newClient reads a URL with the parser that fits, and returns what makes the client.
func newClient(u *url.URL, address string, cluster bool, by access, wait time.Duration) (func() redis.UniversalClient, error) {
	type credentials = func() (user, password string)
	set := func(timeout *time.Duration, bounded *bool, user, secret *string, provider *credentials, config *tls.Config) {
		*bounded = true
		if config != nil {
			config.GetClientCertificate = by.certificate
		}
		if wait > 0 {
			*timeout = wait
		}
		if by.password != "" {
			*secret = by.password
		}
		if by.passwordFile != nil {
			*provider = func() (string, string) { return *user, by.passwordFile() }
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
		opts.Dialer = dialNamed(opts.TLSConfig, by.authority, opts.DialTimeout)
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
		opts.SentinelUsername = cmp.Or(by.sentinelUsername, opts.SentinelUsername)
		opts.SentinelPassword = cmp.Or(by.sentinelPassword, opts.SentinelPassword)
		once(opts)
		// DialTimeout is for all of it: to ask Sentinel for the master, and to dial that. go-redis
		// stays with a Sentinel that is silent as long as DialTimeout ends before the dial of it
		// does.
		opts.Dialer = dialNamed(opts.TLSConfig, by.authority, cmp.Or(opts.DialTimeout, dialTimeout))
		return func() redis.UniversalClient { return redis.NewFailoverClient(opts) }, nil
	}
	opts, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	set(&opts.ReadTimeout, &opts.ContextTimeoutEnabled, &opts.Username, &opts.Password, &opts.CredentialsProvider, opts.TLSConfig)
	if by.authority != nil {
		verifyBy(opts.TLSConfig, by.authority, opts.TLSConfig.ServerName)
	}
	return func() redis.UniversalClient { return redis.NewClient(opts) }, nil
}
