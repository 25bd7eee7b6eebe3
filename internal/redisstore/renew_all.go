package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// Way is that of the client, on a cluster that of the hash tag.
func (s *Lease) Way() any { return s.way }

// RenewAll makes renewals in one pipeline: one call of the script renew_all for the roles of which
// nothing else is to be said, and one of renew for each other. What renew_all has left to renew
// goes in a further pipeline, once the others have been named to done.
func (s *Lease) RenewAll(ctx context.Context, all []store.Renewal, done func(answered []int)) {
	s.finish(ctx, all, s.joined(ctx, all), done)
}

// finish makes the calls, and what they leave to renew.
func (s *Lease) finish(ctx context.Context, all []store.Renewal, calls []journey, done func(answered []int)) {
	left := s.travel(all, calls, done)
	if len(left) == 0 {
		return
	}
	singles := make([]journey, len(left))
	for i, place := range left {
		singles[i] = s.single(ctx, all, place)
	}
	s.travel(all, singles, done)
}

// journey is one call for the renewals in these places.
type journey struct {
	request
	places []int

	answered, left []int // of the places: with a reply or an error, and left to the script renew
}

// alike is what the renewals of one call of renew_all have in common, as nearly all of a process
// have.
type alike struct{ id, ttl, margin, careful any }

func (s *Lease) alike() alike { return alike{s.id, s.ttl, s.margin, s.careful} }

// joined are the calls that make the renewals.
func (s *Lease) joined(ctx context.Context, all []store.Renewal) (calls []journey) {
	joint := make(map[alike][]int, 1)
	for place, r := range all {
		role := r.Lease.(*Lease)
		if !role.joins(r.Request) {
			calls = append(calls, s.single(ctx, all, place))
			continue
		}
		joint[role.alike()] = append(joint[role.alike()], place)
	}
	for _, places := range joint {
		if len(places) == 1 {
			calls = append(calls, s.single(ctx, all, places[0]))
		} else {
			calls = append(calls, s.joint(ctx, all, places))
		}
	}
	return calls
}

// joint is the call of renew_all for the renewals in these places, which are alike.
func (s *Lease) joint(ctx context.Context, all []store.Renewal, places []int) journey {
	sc, first := s.scripts.renewAll, all[places[0]].Lease.(*Lease)
	args := sc.args(strconv.Itoa(3*len(places)), 4+6*len(places))
	for _, place := range places {
		args = append(args, all[place].Lease.(*Lease).keys[:3]...)
	}
	args = append(args, first.id, first.ttl, first.margin, first.careful)
	for _, place := range places {
		r := all[place].Request
		args = append(args, r.Nonce, r.Token, r.NotAfter)
	}
	call := request{store: first.Store, ctx: ctx, script: sc, key: first.key, args: args, newCmd: newText, roles: len(places)}
	return journey{request: call, places: places}
}

// single is the call of renew for the renewal in this place.
func (s *Lease) single(ctx context.Context, all []store.Renewal, place int) journey {
	role := all[place].Lease.(*Lease)
	call := request{store: role.Store, ctx: ctx, script: s.scripts.renew, key: role.key, args: role.renewArgs(all[place].Request), newCmd: newText}
	return journey{request: call, places: []int{place}}
}

// joins reports whether a renewal may be one of renew_all.
func (s *Lease) joins(r lease.Request) bool {
	return r.Heir == "" && r.Floor <= r.Token && r.NotAfter > 0 && !s.apart.next()
}

// mostApart is how many renewals of a role travel by themselves at most before renew_all is tried
// again.
const mostApart = 15

// apart counts renewals that travel by themselves since renew_all has left one to renew: one after
// the first that was left, twice as many and one after each further one.
type apart struct{ left, again atomic.Int32 }

// next reports whether the next renewal travels by itself.
func (a *apart) next() bool {
	if a.left.Load() <= 0 {
		return false
	}
	a.left.Add(-1)
	return true
}

// refused notes that a renewal was left to renew.
func (a *apart) refused() {
	n := min(2*a.again.Load()+1, mostApart)
	a.again.Store(n)
	a.left.Store(n)
}

// renewed notes that one was not.
func (a *apart) renewed() { a.again.Store(0) }

// travel makes the calls, and returns the places that are left to renew.
func (s *Lease) travel(all []store.Renewal, calls []journey, done func(answered []int)) (left []int) {
	requests := make([]request, len(calls))
	for i := range calls {
		requests[i] = calls[i].request
	}
	s.renewals.doAll(requests, func(i int, cmd redis.Cmder, err error) {
		if calls[i].roles > 0 {
			calls[i].takeJoint(all, cmd, err)
		} else {
			calls[i].takeSingle(all, cmd, err)
		}
	}, func(taken []int) {
		var answered []int
		for _, i := range taken {
			answered = append(answered, calls[i].answered...)
		}
		if len(answered) > 0 {
			done(answered)
		}
	})
	for i := range calls {
		left = append(left, calls[i].left...)
	}
	return left
}

func (c *journey) takeSingle(all []store.Renewal, cmd redis.Cmder, err error) {
	c.answered = c.places
	r := &all[c.places[0]]
	if r.Err = err; err == nil {
		r.Reply, r.Err = parseLeaseReply(cmd.(*redis.StringCmd).Val())
	}
}

// takeJoint reads what renew_all has answered. A call that Redis refuses, since it may not touch
// one of the keys, is left to renew: each role is refused, or not, by itself.
func (c *journey) takeJoint(all []store.Renewal, cmd redis.Cmder, err error) {
	var refused redis.Error
	if errors.As(err, &refused) {
		c.leave(all, c.places)
		return
	}
	var reply jointReply
	if err == nil {
		reply, err = parseJointReply(cmd.(*redis.StringCmd).Val(), len(c.places))
	}
	if err != nil {
		c.answered = c.places
		for _, place := range c.places {
			all[place].Err = err
		}
		return
	}
	var left []int
	for i, place := range c.places {
		if reply.renewed[i] == '0' {
			left = append(left, place)
			continue
		}
		r := &all[place]
		role := r.Lease.(*Lease)
		holder, _ := role.id.(string)
		ttl, _ := role.ttl.(int64)
		r.Reply = store.LeaseReply{
			Answer: lease.Answer{
				Verdict: lease.Kept, Now: reply.now, Token: r.Request.Token, TTL: store.Milliseconds(ttl), Since: r.Request.Since, Origin: reply.origin,
			},
			Holder: holder,
		}
		role.apart.renewed()
		c.answered = append(c.answered, place)
	}
	c.leave(all, left)
}

// leave leaves renewals to the script renew.
func (c *journey) leave(all []store.Renewal, places []int) {
	c.left = places
	for _, place := range places {
		all[place].Lease.(*Lease).apart.refused()
	}
}

// jointReply is what renew_all answers.
type jointReply struct {
	now     int64
	origin  string
	renewed string // of each role 1 or 0
}

func parseJointReply(line string, roles int) (reply jointReply, err error) {
	now, rest, _ := strings.Cut(line, " ")
	reply.origin, reply.renewed, _ = strings.Cut(rest, " ")
	reply.now, err = strconv.ParseInt(now, 10, 64)
	if err != nil || len(reply.renewed) != roles || strings.Trim(reply.renewed, "01") != "" {
		return reply, fmt.Errorf("%w: malformed reply %.100q", store.ErrUnreachable, line)
	}
	reply.origin = bounded(reply.origin)
	return reply, nil
}
