package virtual

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is one run: the same Request makes the same history.
type Request struct {
	Profile string
	Seed    uint64
	Length  time.Duration // 0: that of the profile's class; strikes fall until its last part, which is calm
	Until   time.Duration // the run ends here, without the checks that come last; 0: it does not
	Without []int         // strikes of the nemesis that are left out, by their numbers; nothing about the others changes
	Quiet   []string      // kinds of network faults that are left out
}

// The environment of a test process that makes one run.
const (
	envProfile = "TENURE_PROFILE"
	envSeed    = "TENURE_SEED"
	envLength  = "TENURE_LENGTH"
	envUntil   = "TENURE_UNTIL"
	envWithout = "TENURE_WITHOUT"
	envQuiet   = "TENURE_QUIET"

	// EnvResult names the file that the test writes its Result to.
	EnvResult = "TENURE_RESULT"
)

// Environ is the request as environment variables.
func (r Request) Environ() []string {
	env := []string{envProfile + "=" + r.Profile, envSeed + "=" + strconv.FormatUint(r.Seed, 10)}
	if r.Length > 0 {
		env = append(env, envLength+"="+r.Length.String())
	}
	if r.Until > 0 {
		env = append(env, envUntil+"="+r.Until.String())
	}
	if len(r.Without) > 0 {
		env = append(env, envWithout+"="+ranges(r.Without))
	}
	if len(r.Quiet) > 0 {
		env = append(env, envQuiet+"="+strings.Join(r.Quiet, ","))
	}
	return env
}

// FromEnviron reads a request from an environment (os.Getenv); asked is false if it names no
// profile.
func FromEnviron(getenv func(string) string) (r Request, asked bool, err error) {
	r.Profile = getenv(envProfile)
	if r.Profile == "" {
		return Request{}, false, nil
	}
	var errs [4]error
	if text := getenv(envSeed); text != "" {
		r.Seed, errs[0] = strconv.ParseUint(text, 10, 64)
	}
	if text := getenv(envLength); text != "" {
		r.Length, errs[1] = time.ParseDuration(text)
	}
	if text := getenv(envUntil); text != "" {
		r.Until, errs[2] = time.ParseDuration(text)
	}
	r.Without, errs[3] = numbers(getenv(envWithout))
	if text := getenv(envQuiet); text != "" {
		r.Quiet = strings.Split(text, ",")
	}
	return r, true, errors.Join(errs[:]...)
}

// ranges writes numbers as "0-4,7".
func ranges(all []int) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(all)))
	var parts []string
	for from := 0; from < len(sorted); {
		to := from
		for to+1 < len(sorted) && sorted[to+1] == sorted[to]+1 {
			to++
		}
		part := strconv.Itoa(sorted[from])
		if to > from {
			part += "-" + strconv.Itoa(sorted[to])
		}
		parts = append(parts, part)
		from = to + 1
	}
	return strings.Join(parts, ",")
}

// most is how many numbers are read: more than any run has strikes.
const most = 1_000_000

func numbers(text string) (all []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		from, err := strconv.Atoi(low)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", envWithout, err)
		}
		to := from
		if ranged {
			if to, err = strconv.Atoi(high); err != nil {
				return nil, fmt.Errorf("%s: %w", envWithout, err)
			}
		}
		if from < 0 || to < from || to-from+len(all) > most {
			return nil, fmt.Errorf("%s: %q is no range of strikes", envWithout, part)
		}
		for n := from; n <= to; n++ {
			all = append(all, n)
		}
	}
	return all, nil
}
