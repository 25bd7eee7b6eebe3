//go:build unix

package scenario

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// tokens are credentials that are replaced, as those of IAM and Entra are.
type tokens struct {
	mu        sync.Mutex
	password  string
	listeners map[auth.CredentialsListener]bool
}

func (c *tokens) get() (user, password string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "app", c.password
}

// Subscribe makes it an auth.StreamingCredentialsProvider.
func (c *tokens) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners[l] = true
	return auth.NewBasicCredentials("app", c.password), func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, l)
		return nil
	}, nil
}

func (c *tokens) connections() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.listeners))
}

func (c *tokens) replace(password string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.password = password
	for l := range c.listeners {
		go l.OnNext(auth.NewBasicCredentials("app", password)) // ends with its answer, or its connection
	}
}

// Tokens run out, and the server ends the connections that have logged in with them. Each further
// connection, that of a second copy too, logs in with the token of then, and no term ends for it.
func TestP12_TokensThatRunOut(t *testing.T) {
	for name, use := range map[string]func(*redis.Options, *tokens){
		"provider":  func(o *redis.Options, c *tokens) { o.CredentialsProvider = c.get },
		"streaming": func(o *redis.Options, c *tokens) { o.StreamingCredentialsProvider = c },
	} {
		t.Run(name, func(t *testing.T) {
			s := newParallelStage(t, 4*time.Second)
			server := redistest.Start(t, redistest.Args("--user", "app", "on", ">token 0", "~*", "&*", "+@all"))
			admin := server.Client(t)
			proxy := redistest.NewProxy(t, server.Addr())
			own := &tokens{password: "token 0", listeners: make(map[auth.CredentialsListener]bool)}
			opts := &redis.Options{Addr: proxy.Addr(), ReadTimeout: 200 * time.Millisecond}
			use(opts, own)
			client := redis.NewClient(opts)
			t.Cleanup(func() { _ = client.Close() }) // it has nothing to say
			leader := s.join("leader", client, young)
			token := s.leads(leader)
			for i := range 2 {
				s.must(admin.Do(t.Context(), "acl", "setuser", "app", fmt.Sprintf(">token %d", i+1)).Err())
				own.replace(fmt.Sprintf("token %d", i+1))
				s.must(admin.Do(t.Context(), "acl", "setuser", "app", fmt.Sprintf("<token %d", i)).Err())
				s.must(admin.Do(t.Context(), "client", "kill", "user", "app").Err())
				s.holds(s.ttl/2, "the same leader", leader.IsLeader)
				proxy.Blackhole() // what is connected dies without a sign
				proxy.HealNew()
				s.holds(s.ttl, "the same leader", leader.IsLeader)
			}
			proxy.Heal()
			s.onlyTerms(token)
			s.eventually("no connection to be left behind", func() bool { return own.connections() <= proxy.Stats().Open })
		})
	}
}
