package tenure

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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
// or NewStandalone without one: since each process without one leads, the log then has a warning.
// In EnvOff, and in EnvStatic without the flag, it never leads, and says WaitIneligible. A Mode
// that is none of the constants is an *OptionError.
func (o EnvOptions) New() (*Coordinator, error) {
	var c checker
	if oneOf(&c, "Mode", &o.Mode, EnvElect, EnvStatic, EnvOff); c.err() != nil {
		return nil, c.err()
	}
	switch {
	case o.Mode == EnvOff, o.Mode == EnvStatic && !o.StaticLeader:
		coordinator, _, err := newLocal(o.Options, false, neverExpires, nil, nil)
		return coordinator, err
	case o.Mode == EnvStatic:
		return NewStandalone(o.Options)
	case o.Redis != nil:
		return New(o.Redis, o.Options)
	}
	alone, err := NewStandalone(o.Options)
	if err == nil && o.Options.Logger != nil {
		o.Options.Logger.LogAttrs(context.Background(), slog.LevelWarn, "no redis is named, this process leads alone", slog.String("instance", alone.InstanceID()))
	}
	return alone, err
}

// OptionsFromEnv reads options from the environment. Names begin with prefix and "_": the prefix of
// SHOP_REDIS_URL is "SHOP". An empty prefix, one that is not [A-Z][A-Z0-9_]*, or one that ends with
// "_", is refused. A variable that is empty counts as one that is not set, and so does a port such
// as tcp://10.96.7.8:6379: Kubernetes sets SHOP_REDIS_PORT to that if there is a Service
// shop-redis. All problems are returned at once: errors.As finds each *OptionError, whose Field is
// the name of the variable.
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
//	                    in place of ADDRESS: it is http://host:port, also of an IPv6 address;
//	                    ADDRESS_SCHEME may be https
//	WORKER_COUNT, WORKER_ID
//	                    a number
//	ROLES, CAPABILITIES name,name: those of RegistryOptions
//	METADATA            name=value,name=value
//	FAIL_FAST           true or false
//	REDIS_URL           redis://user:password@host:port/db, rediss:// or unix://, with the query
//	                    parameters of go-redis; with ?master_name=… by Sentinel: user:password
//	                    are then those of Sentinel, and username=… is the user of Redis, as is
//	                    a user without a password before the host
//	REDIS_SENTINEL_USERNAME, REDIS_SENTINEL_PASSWORD
//	                    in place of those in the URL; REDIS_SENTINEL_PASSWORD_FILE is a file with the
//	                    password, read once
//	REDIS_CLUSTER       true: REDIS_URL or REDIS_HOST names a node of a Redis Cluster
//	REDIS_HOST, REDIS_PORT, REDIS_USERNAME, REDIS_DB, REDIS_TLS
//	                    in place of REDIS_URL; the port is 6379 unless it is set
//	REDIS_PASSWORD      of either
//	REDIS_PASSWORD_FILE in place of REDIS_PASSWORD: a file with it, such as a mounted secret, read
//	                    anew for each connection
//	REDIS_CERT_FILE, REDIS_KEY_FILE
//	                    files in PEM with the client certificate, and its key, for a Redis with TLS
//	                    that asks for one. They are read anew for each connection
//	REDIS_CA_FILE       a file in PEM with the certificates of the authorities that vouch for a Redis
//	                    with TLS, in place of those of the system; read anew for each connection
//
// If neither REDIS_URL nor REDIS_HOST is set, the process is meant to run alone: Redis is nil. Any
// other of these variables of Redis is refused then, and so are REDIS_ADDR, REDIS_ADDRESS,
// REDIS_ADDRS, REDIS_URI and REDIS_DSN, unless ELECTION is static or off. The client is made for
// leases: contexts bound its calls, and it waits for an answer for a tenth of LEASE_TTL unless the
// URL has a read_timeout. A client of Sentinel or of a Cluster dials a server once, for a second,
// unless the URL has a dial_timeout or dialer_retries. With TLS a server that Sentinel or a Cluster
// names has a certificate of the address that it is named by, or of the host in the URL. No error
// has a password or a URL in it. Values that are in range by themselves are checked against each
// other by EnvOptions.New.
func OptionsFromEnv(prefix string) (EnvOptions, error) {
	e := environment{prefix: prefix + "_"}
	if !envPrefix.MatchString(prefix) {
		e.refuse("prefix", prefix, "must match %s: it is SHOP if a variable is SHOP_REDIS_URL", envPrefix)
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

// envPrefix has no "_" at its end. With one no variable would be found, so that each process would
// be without a Redis, and lead.
var envPrefix = regexp.MustCompile(`^[A-Z]([A-Z0-9_]*[A-Z0-9])?$`)

// environment reads variables and gathers what is wrong with them.
type environment struct {
	checker
	prefix string
}

func (e *environment) text(name string) string {
	text := os.Getenv(e.prefix + name)
	if strings.HasSuffix(name, "_PORT") && strings.HasPrefix(text, "tcp://") { // set by Kubernetes, see OptionsFromEnv
		return ""
	}
	return text
}

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

// isHost reports whether a text may be the name or the IP address of a host, without anything else.
func isHost(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil || !strings.ContainsAny(text, "/?#@[]:%\\\"<> ")
}

// address reads where other processes reach this one. A platform that gives the IP address alone
// cannot say whether that needs brackets.
func (e *environment) address() string {
	host, port, scheme := e.text("ADDRESS_HOST"), e.text("ADDRESS_PORT"), e.text("ADDRESS_SCHEME")
	if host == "" && port == "" {
		if scheme != "" {
			e.refuseVariable("ADDRESS_SCHEME", "must not be set without %sADDRESS_HOST and %sADDRESS_PORT", e.prefix, e.prefix)
		}
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
	oneOf(&e.checker, e.prefix+"ADDRESS_SCHEME", &scheme, "http", "https")
	return scheme + "://" + net.JoinHostPort(host, port)
}
