package lease

import "time"

// release is a lease, or the possibility of one, that is still to be given back.
type release struct {
	request Request
	due     time.Duration
	until   time.Duration // by then the lease has lapsed by itself
	tries   int
	flying  bool
}

// giveBack queues the release of a lease of a campaign that is over. Its nonce is unique, so it can
// harm nobody however late it arrives.
func (c *Candidate) giveBack(now Reading, nonce string, token int64) {
	if nonce == "" {
		return
	}
	patience := c.timing.TTL
	if c.stopping { // the process wants to end: another waits for the lease to lapse
		patience = c.timing.Attempt()
	}
	request := Request{Kind: Release, Nonce: nonce, Token: token, Bound: c.timing.Attempt(), Why: Unheard}
	if c.state == Draining && nonce == c.nonce {
		request.Why, request.Ago = c.reason.String(), now.Mono-c.ended
	}
	if c.heir != "" && nonce == c.nonce {
		request.Heir, request.Reserve = c.heir, c.timing.Reserve()
	}
	for _, p := range c.releases { // a renewal of that term was answered late: this release may arrive before the first one
		if p.request.Nonce == nonce {
			request.Why, request.Ago, request.Heir, request.Reserve = p.request.Why, p.request.Ago, p.request.Heir, p.request.Reserve
		}
	}
	c.releases = append(c.releases, release{request: request, due: now.Mono, until: now.Mono + patience})
}

func (c *Candidate) released(now Reading, r Request, a Answer) {
	for i := range c.releases {
		p := &c.releases[i]
		switch {
		case p.request.Nonce != r.Nonce || p.request.Token != r.Token:
		case a.Verdict == Done: // a late answer is as good
			p.tries, p.flying, p.until = maxTries, false, now.Mono
		case p.flying && p.request.Seq == r.Seq:
			p.flying = false
			c.retryRelease(now, p)
		}
	}
	c.dropReleases(now)
}

func (c *Candidate) retryRelease(now Reading, r *release) { r.due = now.Mono + c.backoff(r.tries) }

// dropReleases forgets releases that are done, were tried often enough, or whose lease has lapsed
// by itself.
func (c *Candidate) dropReleases(now Reading) {
	kept := c.releases[:0]
	for _, r := range c.releases {
		if r.flying || r.tries == 0 || r.tries < maxTries && now.Mono < r.until {
			kept = append(kept, r)
		}
	}
	c.releases = kept
}
