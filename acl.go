package tenure

import (
	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

// ControlRules returns the rights that the Redis user of a Control needs, in the form of ACLRules:
// those, and the right to send commands to instances. The user of a process that only takes part
// need not have it: without it no command can be sent, and every one is received. NewControl and
// Coordinator.Control return ErrMisconfigured for what is not allowed. The errors are those of
// ACLRules.
func ControlRules(namespace string, leaderKeys ...string) ([]string, error) {
	rules, err := ACLRules(namespace, leaderKeys...)
	if err != nil {
		return nil, err
	}
	for _, command := range redisstore.ControlCommands {
		rules = append(rules, "+"+command)
	}
	return rules, nil
}

// ACLRules returns the rights that a Redis user needs for everything in the namespace, and for each
// LeaderKey outside of it, as arguments of ACL SETUSER: keys, the channels of hints, and each
// command by name. They allow no more than tenure uses. They contain no name and no password:
//
//	ACL SETUSER app reset on >password <rules>
//
// Some rights may be left out at a price. Without subscribe or the channels no hint arrives, and
// without publish none is sent (ElectionStatus.Subscription): a follower that waits for a release
// finds it at its own next attempt, a leader hears no roll-call (see
// SafetyOptions.EmptyHistoryWait), and a command of a Control waits for a heartbeat. Without the
// channel of <namespace>:instance:* a check of the subscription shows only that it is connected,
// not that it is connected to the server that the scripts run on. Without info a restart or
// failover of Redis is not noticed (ElectionStatus.HistoryWitness). Without the key :terms of a
// LeaderKey its terms have no history (Elector.Terms).
//
// Some options of the client make go-redis send more commands as it connects. They need one more
// right each: ClientName +client|setname, DB +select, and ReadOnly of a cluster +readonly. A client
// of Sentinel needs no more on the data servers. Its rights on the Sentinels are those of another
// user, which these rules do not cover.
//
// If Options would refuse the namespace or a key, ACLRules returns the error that New returns:
// errors.As finds an *OptionError in it.
func ACLRules(namespace string, leaderKeys ...string) ([]string, error) {
	var c checker
	c.namespace("Namespace", namespace)
	for _, key := range leaderKeys {
		c.namespace("LeaderKey", key)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	rules := []string{"~" + namespace + ":*"}
	for _, key := range leaderKeys {
		rules = append(rules, "~"+key, "~"+key+":since", "~"+key+":term", "~"+key+":terms")
	}
	table := store.Keys(namespace)
	rules = append(rules, "&"+table.Events(), "&"+store.LeaseEvents(table.Lease("")), "&"+store.LeaseEvents(table.Lease("*")), "&"+table.Own("*"))
	for _, key := range leaderKeys {
		rules = append(rules, "&"+store.LeaseEvents(key))
	}
	for _, command := range redisstore.ScriptCommands {
		rules = append(rules, "+"+command)
	}
	for _, command := range redisstore.ClientCommands {
		rules = append(rules, "+"+command)
	}
	return rules, nil
}
