package simnet

import "time"

// clock is Redis's wall clock: a rate and an offset against the bubble's.
type clock struct {
	base time.Time // bubble time of the last change of rate
	at   time.Time // what this clock read then
	rate float64
}

func newClock(offset time.Duration, rate float64) clock {
	now := time.Now()
	if rate == 0 {
		rate = 1
	}
	return clock{base: now, at: now.Round(0).UTC().Add(offset), rate: rate}
}

func (c clock) now() time.Time {
	elapsed := time.Since(c.base)
	if c.rate != 1 {
		elapsed = time.Duration(float64(elapsed) * c.rate)
	}
	return c.at.Add(elapsed)
}

func (c clock) withRate(rate float64) clock {
	return clock{base: time.Now(), at: c.now(), rate: rate}
}
