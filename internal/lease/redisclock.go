package lease

import "time"

// RedisClock estimates what Redis's clock reads, from the times in replies and the monotonic clock
// of this machine. The zero value knows nothing. It is not safe for concurrent use.
type RedisClock struct {
	known  bool
	base   int64         // its time, ms
	at     time.Duration // when it was that: halfway between asking and hearing
	spread time.Duration // half of what lay between
	heard  time.Duration // when it was last heard of
}

// Learn takes the time in a reply, in Unix ms, and when it was asked and heard. A reply that took
// long says less than a better one that is not too old. step is by how much Redis's clock was set
// since, if nothing else explains the time; zero: it was not.
func (c *RedisClock) Learn(sent, received time.Duration, ms int64) (step time.Duration) {
	next := RedisClock{known: true, base: ms, at: sent + (received-sent)/2, spread: (received - sent) / 2, heard: received}
	if c.known {
		doubt := c.spread + (next.at-c.at)/100 // as far as the rates of two clocks may differ
		apart := time.Duration(next.base-c.Read(next.at)) * time.Millisecond
		between := max(received-c.at, c.at-sent) // at most, from that reading to this one
		switch explained := max(apart, -apart) <= next.spread+c.spread+between/100+2*time.Millisecond; {
		case !explained && next.at < c.at: // older news, from before a step
			return 0
		case !explained:
			step = apart
		case next.spread > doubt:
			c.heard = max(c.heard, received)
			return 0
		}
	}
	*c = next
	return step
}

// Known reports whether a reply was learned from.
func (c *RedisClock) Known() bool { return c.known }

// Spread is by how much the estimate may be off: half of the round trip that it was learned from.
func (c *RedisClock) Spread() time.Duration { return c.spread }

// Heard is when a reply was last learned from, by the monotonic clock.
func (c *RedisClock) Heard() time.Duration { return c.heard }

// Read is the estimate, in Unix ms, for an instant of the monotonic clock.
func (c *RedisClock) Read(now time.Duration) int64 { return c.base + (now - c.at).Milliseconds() }

// Until is how long it is from now to a time of Redis's clock in Unix ms: negative if it has
// passed, a century at most.
func (c *RedisClock) Until(ms int64, now time.Duration) time.Duration {
	const year = 365 * 24 * int64(time.Hour/time.Millisecond)
	return time.Duration(min(max(ms-c.base, -100*year), 100*year))*time.Millisecond - (now - c.at)
}
