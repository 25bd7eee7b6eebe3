package tenure

import "time"

// redisClock estimates what Redis's clock reads, from the times in replies and the monotonic clock of this machine.
type redisClock struct {
	known  bool
	base   int64         // its time, ms
	at     time.Duration // when it was that: halfway between asking and hearing
	spread time.Duration // half of what lay between
	heard  time.Duration // when it was last heard of
}

// learn takes the time in a reply. One that took long says less than a better one does that is not too old. step is by how much
// Redis's clock was set since, where nothing else explains the time; zero: it was not.
func (c *redisClock) learn(sent, received time.Duration, ms int64) (step time.Duration) {
	next := redisClock{known: true, base: ms, at: sent + (received-sent)/2, spread: (received - sent) / 2, heard: received}
	if c.known {
		doubt := c.spread + (next.at-c.at)/100 // as far as the rates of two clocks may differ
		apart := time.Duration(next.base-c.read(next.at)) * time.Millisecond
		switch explained := max(apart, -apart) <= next.spread+doubt+2*time.Millisecond; {
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

// read is the estimate for an instant of the monotonic clock.
func (c *redisClock) read(now time.Duration) int64 { return c.base + (now - c.at).Milliseconds() }

// until is how long it is from now to a time of Redis's clock; negative where it has passed.
func (c *redisClock) until(ms int64, now time.Duration) time.Duration {
	const year = 365 * 24 * int64(time.Hour/time.Millisecond)
	return time.Duration(min(max(ms-c.base, -100*year), 100*year))*time.Millisecond - (now - c.at)
}
