package virtual

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRequestTravelsThroughTheEnvironment(t *testing.T) {
	for _, want := range []Request{
		{Profile: "base", Seed: 7},
		{Profile: "rough", Seed: 1 << 63, Length: time.Hour, Until: 90 * time.Second, Without: []int{0, 1, 2, 7, 9}, Quiet: []string{"loss", "tear"}},
	} {
		env := map[string]string{}
		for _, variable := range want.Environ() {
			name, value, _ := strings.Cut(variable, "=")
			env[name] = value
		}
		got, asked, err := FromEnviron(func(name string) string { return env[name] })
		if err != nil || !asked || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v (%v, %v)", want, got, asked, err)
		}
	}
}

func TestRequestRefusesWhatIsNoRange(t *testing.T) {
	for _, without := range []string{"x", "3-1", "-1", "0-99999999999", "1,,2"} {
		_, _, err := FromEnviron(func(name string) string {
			return map[string]string{envProfile: "p", envWithout: without}[name]
		})
		if err == nil {
			t.Errorf("%q was taken", without)
		}
	}
	if _, asked, err := FromEnviron(func(string) string { return "" }); asked || err != nil {
		t.Error("an empty environment asks for a run")
	}
}

func TestMinimalKeepsWhatIsNeeded(t *testing.T) {
	all := make([]int, 200)
	for i := range all {
		all[i] = i
	}
	for _, needed := range [][]int{{}, {0}, {199}, {3, 90}, {0, 1, 100, 199}} {
		tries := 0
		got := Minimal(all, func(kept []int) bool {
			tries++
			return !slices.ContainsFunc(needed, func(n int) bool { return !slices.Contains(kept, n) })
		})
		if !slices.Equal(got, needed) || tries > 100 {
			t.Errorf("of %v was kept %v, after %d tries", needed, got, tries)
		}
	}
}

// fake is a run that fails at the strike numbered 40 if strike 10 fell before and messages are
// lost; and otherwise now and then.
func fake(r Request) (Result, error) {
	result := Result{Request: r, Calm: time.Hour}
	for n := range 100 {
		at := time.Duration(n) * time.Second
		if r.Until > 0 && at > r.Until {
			break
		}
		result.Strikes = append(result.Strikes, Strike{Number: n, At: at, Out: slices.Contains(r.Without, n)})
	}
	fell := func(n int) bool { return n < len(result.Strikes) && !result.Strikes[n].Out }
	switch {
	case fell(10) && fell(40) && !slices.Contains(r.Quiet, "loss"):
		result.Wrong, result.At = []string{"P1: two lead"}, 40*time.Second
	case fell(11):
		result.Wrong, result.At = []string{"P7: nobody leads"}, 11*time.Second
	case len(r.Without) == 3:
		return result, errors.New("no result")
	}
	return result, nil
}

func TestShrinkKeepsThePromiseThatWasBroken(t *testing.T) {
	failed, _ := fake(Request{Profile: "p", Seed: 1})
	smallest, _ := Shrink(failed, []string{"cut", "delay", "loss"}, time.Hour, fake)
	var kept []int
	for _, s := range smallest.Strikes {
		if !s.Out {
			kept = append(kept, s.Number)
		}
	}
	if smallest.Promise() != "P1" || !slices.Equal(kept, []int{10, 40}) || !slices.Equal(smallest.Quiet, []string{"cut", "delay"}) {
		t.Errorf("%q with strikes %v, without %q", smallest.Promise(), kept, smallest.Quiet)
	}
	if none, replays := Shrink(failed, nil, 0, fake); replays != 0 || !reflect.DeepEqual(none, failed) {
		t.Error("without patience something was run")
	}
}
