//go:build unix

package redistest

// Option is a choice for one server.
type Option func(*config)

type config struct {
	args     []string
	env      []string
	persist  bool
	master   *Server
	username string
	password string
	conf     string     // of a Sentinel; "": a data server
	secured  *Authority // nil: no TLS
}

// Args appends settings to the command line, as in Args("--maxmemory", "3mb"), after the harness's
// own: of two values the later one holds. Log level, log file, port and folder are the harness's. A
// setting of several words is several arguments: Args("--user", "limited", "on", ">secret",
// "~app:*", "+@all").
func Args(args ...string) Option { return func(c *config) { c.args = append(c.args, args...) } }

// Env appends to the environment of the server, as in Env("LD_PRELOAD=…").
func Env(env ...string) Option { return func(c *config) { c.env = append(c.env, env...) } }

// Persist has the server write every command to its append-only file before it answers: data
// outlive [Server.Kill]. Without it a server comes back empty.
func Persist() Option { return func(c *config) { c.persist = true } }

// ReplicaOf starts the server as a replica, see [Server.WaitReplicated]. It stays one through
// restarts until [Server.Promote].
func ReplicaOf(master *Server) Option { return func(c *config) { c.master = master } }

// Login names the user of [Server.Options], of [Server.Client] and of the harness's own
// connections, for a server whose Args ask for one.
func Login(username, password string) Option {
	return func(c *config) { c.username, c.password = username, password }
}

// Secured has the server speak TLS and nothing else, with a certificate of the authority.
// [Server.Options] trusts it.
func Secured(by *Authority) Option { return func(c *config) { c.secured = by } }
