package driver

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// drive runs a driver, and returns what ends it.
func drive(d *Driver) (stop, wait func()) {
	stopped, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		d.Run(stopped)
	}()
	return func() { close(stopped) }, func() { <-over }
}

// TestTurns: each loop has its turns at the times that it asks for, and whenever it was nudged, as
// if it was alone.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(func() {})
		began := time.Now()
		type loop struct {
			seat  *Seat
			due   time.Duration // since began
			turns int
			late  bool
		}
		var mu sync.Mutex
		turns := func(l *loop) int {
			mu.Lock()
			defer mu.Unlock()
			return l.turns
		}
		loops := make([]*loop, 200)
		r := rand.New(rand.NewPCG(1, 1))
		for i := range loops {
			l := &loop{}
			loops[i] = l
			l.seat = d.Seat(func(bool) Next {
				mu.Lock()
				defer mu.Unlock()
				now := time.Since(began)
				if now > l.due {
					l.late = true
				}
				if l.turns++; l.turns == 100 {
					return Next{Over: true}
				}
				in := time.Duration(r.IntN(int(time.Second))) - time.Millisecond
				l.due = now + max(in, 0)
				return Next{In: in}
			})
			l.seat.Nudge() // without an effect before Start
		}
		_, wait := drive(d)
		synctest.Wait()
		for _, l := range loops {
			require.Zero(t, turns(l))
			mu.Lock()
			l.due = time.Since(began)
			mu.Unlock()
			l.seat.Start()
			synctest.Wait()
			require.NotZero(t, turns(l))
			time.Sleep(time.Millisecond)
		}
		var on, over int // loops at a nudge
		for i := range 1000 {
			l := loops[(i*37)%len(loops)]
			before := turns(l)
			l.seat.Nudge()
			l.seat.Nudge()
			synctest.Wait()
			if before < 100 {
				on++
				require.Greater(t, turns(l), before)
			} else {
				over++
				require.Equal(t, before, turns(l))
			}
			time.Sleep(50 * time.Millisecond)
		}
		require.NotZero(t, on)
		require.NotZero(t, over)
		d.Close()
		wait()
		for _, l := range loops {
			require.Equal(t, 100, l.turns)
			require.False(t, l.late)
			l.seat.Nudge() // without an effect
		}
	})
}

// TestCompany: of more than a few loops, those whose turns may be earlier or later have them
// together, within what they allow; one that asks rarely comes no earlier than the others may.
// Those that allow nothing wait for nobody.
func TestCompany(t *testing.T) {
	const (
		strict = iota // allows nothing
		rare          // asks every ten seconds
		usual
	)
	for _, few := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d := New(func() {})
			loops := 10 * Few
			if few {
				loops = Few
			}
			r := rand.New(rand.NewPCG(1, 1))
			instants, began := map[time.Time]int{}, time.Now()
			turns := make([]int, loops)
			for i := range loops {
				var due time.Time
				every, early, late := time.Second, 500*time.Millisecond, 100*time.Millisecond
				switch i {
				case strict:
					early, late = 0, 0
				case rare:
					every, early, late = 10*every, 10*early, 10*late
				}
				d.Seat(func(isEarly bool) Next {
					now := time.Now()
					if turns[i] > 0 {
						if i != strict {
							instants[now]++
						}
						require.True(t, isEarly || !now.Before(due), "it is told")
						require.LessOrEqual(t, due.Sub(now), 500*time.Millisecond)
						require.LessOrEqual(t, now.Sub(due), late)
						if i == strict || few {
							require.Equal(t, due, now)
						}
					}
					turns[i]++
					if now.Sub(began) > time.Minute {
						return Next{Over: true}
					}
					in := every*9/10 + time.Duration(r.IntN(int(every/5)))
					due = now.Add(in)
					return Next{In: in, Early: early, Late: late}
				}).Start()
			}
			d.Close()
			_, wait := drive(d)
			wait()
			all := 0
			for _, n := range turns {
				all += n
			}
			require.InDelta(t, 60*(loops-1)+6, all, float64(6*loops), "none has many more turns")
			if few {
				require.Greater(t, len(instants), all*9/10)
			} else { // fewer and fewer are left at the end
				require.Less(t, len(instants), 80+Few)
			}
		})
	}
}

// TestStop: the stop gives each loop a turn, and Run returns when all have ended, but not before
// the driver is closed.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(func() {})
		stopped, turns := false, 0
		start := func() {
			d.Seat(func(bool) Next {
				turns++
				return Next{In: time.Hour, Over: stopped}
			}).Start()
		}
		for range 10 {
			start()
		}
		stop, wait := drive(d)
		synctest.Wait()
		require.Equal(t, 10, turns)
		stopped = true
		stop()
		synctest.Wait()
		require.Equal(t, 20, turns)
		start() // after the others have ended
		synctest.Wait()
		require.Equal(t, 21, turns)
		began := time.Now()
		time.AfterFunc(time.Minute, d.Close)
		wait()
		require.Equal(t, time.Minute, time.Since(began))
	})
}

// TestOthersHaveTheirTurns: a loop that always wants one more keeps nobody from his.
func TestOthersHaveTheirTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(func() {})
		greedy, modest := 0, 0
		d.Seat(func(bool) Next {
			greedy++
			return Next{Over: modest == 100 || greedy > 1000}
		}).Start()
		var seat *Seat
		seat = d.Seat(func(bool) Next {
			modest++
			seat.Nudge()
			return Next{In: time.Hour, Over: modest == 100}
		})
		seat.Start()
		d.Close()
		_, wait := drive(d)
		wait()
		require.Equal(t, 100, modest)
		require.InDelta(t, 100, greedy, 2)
	})
}

// TestSeatsOfLoopsThatEnd: whichever loop ends, the others keep their places, but for the last one,
// which takes that of the one that has ended.
func TestSeatsOfLoopsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(func() {})
		const many = 100
		turns, ends := make([]int, many), make([]bool, many)
		seats := make([]*Seat, many)
		for i := range seats {
			seats[i] = d.Seat(func(bool) Next {
				turns[i]++
				return Next{In: time.Hour, Over: ends[i]}
			})
			seats[i].Start()
		}
		_, wait := drive(d)
		synctest.Wait()
		r := rand.New(rand.NewPCG(1, 1))
		for n, i := range r.Perm(many) {
			ends[i] = true
			seats[i].Nudge()
			synctest.Wait()
			require.Equal(t, 2, turns[i])
			d.mu.Lock()
			require.Len(t, d.seats, many-n-1)
			for place, s := range d.seats {
				require.Equal(t, place, s.place)
			}
			d.mu.Unlock()
		}
		d.Close()
		wait()
	})
}

// TestNoTurnAfterTheLast: a loop that was nudged in its last turn has no other one, and later
// nudges wake nobody.
func TestNoTurnAfterTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes, turns, over := 0, 0, false
		d := New(func() { passes++ })
		other := d.Seat(func(bool) Next { return Next{In: time.Hour, Over: over} })
		other.Start()
		var seat *Seat
		seat = d.Seat(func(bool) Next {
			turns++
			seat.Nudge()
			return Next{Over: true}
		})
		seat.Start()
		_, wait := drive(d)
		synctest.Wait()
		require.Equal(t, 1, turns)
		before := passes
		seat.Nudge()
		synctest.Wait()
		require.Equal(t, before, passes)
		d.Close()
		synctest.Wait()
		over = true
		began := time.Now()
		other.Nudge()
		wait()
		require.Equal(t, 1, turns)
		require.Zero(t, time.Since(began), "nobody sleeps when the last one has ended")
	})
}

// TestNudgesCauseOneTurn: a loop has one turn for all nudges before it.
func TestNudgesCauseOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(func() {})
		turns := 0
		seat := d.Seat(func(bool) Next {
			turns++
			return Next{In: time.Hour, Over: turns == 2}
		})
		d.Seat(func(bool) Next { // no turn of the other one begins meanwhile
			seat.Start()
			seat.Nudge()
			Nudge(seat, seat)
			require.Zero(t, turns)
			return Next{Over: true}
		}).Start()
		_, wait := drive(d)
		synctest.Wait()
		require.Equal(t, 1, turns)
		seat.Nudge()
		d.Close()
		wait()
	})
}

// TestEarlyTurns: a loop has its turn with another one only if both may be early by as much as they
// said last, and one turn then.
func TestEarlyTurns(t *testing.T) {
	const at = 10 * time.Second
	next := func(in, early time.Duration) Next { return Next{In: in, Early: early} }
	for _, tt := range []struct {
		name       string
		due, other []Next // what they say in one turn after the other
		want       []time.Duration
	}{
		{"in reach of both", []Next{next(at, 5*time.Second)}, []Next{next(at+2*time.Second, 3*time.Second)}, []time.Duration{0, at}},
		{"earlier than it may", []Next{next(at, 5*time.Second)}, []Next{next(at+2*time.Second, time.Second)}, []time.Duration{0, at + 2*time.Second}},
		{"out of reach of the first", []Next{next(at, time.Second)}, []Next{next(at+2*time.Second, 3*time.Second)}, []time.Duration{0, at + 2*time.Second}},
		{"early no more", []Next{next(at, 5*time.Second)}, []Next{next(time.Second, time.Millisecond), next(at+time.Second, 0)}, []time.Duration{0, time.Second, at + 2*time.Second}},
		{
			"the first is early no more", []Next{next(time.Second, 5*time.Second), next(at, 0)}, []Next{next(at+2*time.Second, 3*time.Second)},
			[]time.Duration{0, at + 2*time.Second},
		},
		{"both at once, and soon again", []Next{next(at, 5*time.Second)}, []Next{next(at, 5*time.Second), next(time.Second, 5*time.Second)}, []time.Duration{0, at, at + time.Second}},
		{"hardly ever", []Next{next(at, 5*time.Second)}, []Next{{In: math.MaxInt64, Early: time.Second, Late: time.Hour}}, []time.Duration{0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, began, over := New(func() {}), time.Now(), false
			says := func(all []Next) func(bool) Next {
				return func(bool) Next {
					said := Next{In: time.Hour, Over: over}
					if len(all) > 0 {
						said, all = all[0], all[1:]
					}
					return said
				}
			}
			for range Few {
				d.Seat(says(nil)).Start()
			}
			d.Seat(says(tt.due)).Start()
			var turns []time.Duration
			other := says(tt.other)
			d.Seat(func(early bool) Next {
				if !over {
					turns = append(turns, time.Since(began))
				}
				return other(early)
			}).Start()
			stop, wait := drive(d)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, tt.want, turns, tt.name)
			over = true
			d.Close()
			stop()
			wait()
		})
	}
}

// TestWhoWaitsForCompany: of more than a few, one that may be early or late comes with others that
// may be as well, also if it could not join an earlier one; of one that may not it takes no notice.
func TestWhoWaitsForCompany(t *testing.T) {
	type asked struct{ in, early, late time.Duration }
	for name, tt := range map[string]struct {
		one    asked
		others []asked
		comes  time.Duration
	}{
		"alone":                   {asked{10 * time.Second, 5 * time.Second, 3 * time.Second}, nil, 13 * time.Second},
		"beside a strict one":     {asked{10 * time.Second, 5 * time.Second, 3 * time.Second}, []asked{{in: 11 * time.Second}}, 13 * time.Second},
		"with one that is early":  {asked{20 * time.Second, 2 * time.Second, time.Second}, []asked{{19 * time.Second, 5 * time.Second, 0}}, 19 * time.Second},
		"too early for the first": {asked{20 * time.Second, 2 * time.Second, time.Second}, []asked{{10 * time.Second, 15 * time.Second, 0}, {19 * time.Second, 5 * time.Second, 0}}, 19 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := New(func() {})
				began := time.Now()
				var came []time.Duration
				seat := func(a asked, turn func()) {
					turns := 0
					d.Seat(func(bool) Next {
						if turns++; turns > 1 {
							turn()
							return Next{Over: true}
						}
						return Next{In: a.in, Early: a.early, Late: a.late}
					}).Start()
				}
				for range Few {
					seat(asked{in: time.Hour}, func() {})
				}
				for _, a := range tt.others {
					seat(a, func() {})
				}
				seat(tt.one, func() { came = append(came, time.Since(began)) })
				for range Few { // still many when others have ended
					seat(asked{in: time.Hour}, func() {})
				}
				d.Close()
				_, wait := drive(d)
				wait()
				require.Equal(t, []time.Duration{tt.comes}, came)
			})
		})
	}
}
