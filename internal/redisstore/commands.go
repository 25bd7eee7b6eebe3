package redisstore

// ScriptCommands are the commands that scripts.lua calls.
var ScriptCommands = []string{
	"time", "info", "publish",
	"get", "getrange", "set", "del", "exists", "pttl", "pexpire",
	"hget", "hkeys", "hset", "hdel", "hlen", "hmget", "hscan", "hstrlen",
	"zadd", "zcard", "zcount", "zmscore", "zrangebyscore", "zrem", "zremrangebyrank", "zremrangebyscore", "zscore",
	"sadd", "srem", "xadd", "xrevrange", "xrange", "lrange", "lrem",
}

// ControlCommands are those that scripts.lua calls for whoever sends commands to instances, and for
// nobody else.
var ControlCommands = []string{"rpush"}

// ClientCommands are those that the client sends: the scripts, the reading of task records, the
// subscription to hints and how many have it, and what go-redis sends for itself as it connects, or
// moves about in a cluster. It introduces itself with CLIENT SETINFO too, which a Redis before 7.2
// does not know as a rule, and does not mind a refusal.
var ClientCommands = []string{
	"eval", "evalsha", "sscan", "subscribe", "unsubscribe", "ping", "pubsub|numsub",
	"cluster|slots", "command", "asking",
}
