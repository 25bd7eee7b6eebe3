package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/out"
	"github.com/tenure-go/tenure/cmd/tenure/internal/source"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look at Redis, its rights and settings, and say what to fix", Args: cobra.NoArgs,
		Long: `doctor looks at the connection, the scripts, the rights, eviction, persistence, failover,
round trips and clocks, with the options of TENURE_LEASE_TTL and its siblings. Nothing that it
sends changes anything. It exits with 1 if there is a fault, and with 0 otherwise.`,
		RunE: func(command *cobra.Command, _ []string) error {
			from, err := a.connectRedis("doctor")
			if err != nil {
				return err
			}
			options := a.env.Options
			options.InstanceID = "doctor"
			coordinator, err := tenure.New(from.Client, options) // it does not run
			if err != nil {
				return err
			}
			ctx, cancel := a.bound(command)
			defer cancel()
			findings := coordinator.Doctor(ctx)
			faults := 0
			g := out.Grid{Head: []string{"CHECK", "LEVEL", "FOUND"}}
			for _, f := range findings {
				if f.Level == tenure.FindingFault {
					faults++
				}
				g.Add(f.Check, string(f.Level), f.Text)
				if f.Fix != "" {
					g.Below("fix: " + f.Fix)
				}
			}
			if err := list(a, findings, "", func(bool) out.Grid { return g }); err != nil {
				return err
			}
			if faults > 0 {
				return &exitError{code: exitNot}
			}
			return nil
		},
	}
}

func (a *app) aclCommand() *cobra.Command {
	var user string
	var control bool
	var keys []string
	command := &cobra.Command{
		Use: "acl", Short: "The rights that a Redis user needs, as a line of an ACL file", Args: cobra.NoArgs,
		Long: `acl prints the least rights for the namespace, without asking Redis. The password is left
to you: the line ends without one.

  tenure acl -n shop --user shop >> users.acl`,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := cmp.Or(checkUser(user), a.needsRedis("acl")); err != nil {
				return err
			}
			namespace := a.settings.Text("namespace")
			if namespace == "" {
				return errors.New("it is not known which namespace is meant (fix: --namespace NAME, or TENURE_NAMESPACE)")
			}
			if key := a.settings.Text("leader_key"); key != "" && !command.Flags().Changed("leader-key") {
				keys = []string{key}
			}
			rulesOf := tenure.ACLRules
			if control {
				rulesOf = tenure.ControlRules
			}
			rules, err := rulesOf(namespace, keys...)
			if err != nil {
				return err
			}
			if !a.format.Person() {
				return out.Value(a.out, a.format, rules)
			}
			_, err = fmt.Fprintf(a.out, "user %s reset on %s\n", user, out.Plain(strings.Join(rules, " ")))
			return err
		},
	}
	command.Flags().StringVar(&user, "user", "tenure", "name of the user")
	command.Flags().BoolVar(&control, "control", false, "also the right to send commands, which this program needs to change anything")
	command.Flags().StringSliceVar(&keys, "leader-key", nil, "a lease outside of the namespace (TENURE_LEADER_KEY)")
	return command
}

func (a *app) healthcheckCommand() *cobra.Command {
	var at, id string
	command := &cobra.Command{
		Use: "healthcheck", Short: "For a container's probe: is this instance well", Args: cobra.NoArgs,
		Long: `healthcheck exits with 0 if the instance is active. With --url it asks the instance itself,
for a 2xx, and follows no redirect: use that if the program serves HTTP (readyz of package
tenurehttp). TENURE_API_CA_FILE names the authority of its certificate, if that is a private one.
Without --url it asks Redis for the record of the instance: that fails for all instances at once
while Redis is down, so do not let it restart anything.`,
		RunE: func(command *cobra.Command, _ []string) error {
			if command.Flags().Changed("url") {
				return a.probe(command, at)
			}
			if id = cmp.Or(id, a.settings.Text("instance_id"), os.Getenv("HOSTNAME")); id == "" {
				return errors.New("it is not known which instance is meant (fix: --instance ID, TENURE_INSTANCE_ID or HOSTNAME)")
			}
			if err := checkInstance(id); err != nil {
				return err
			}
			return a.asks(func(ctx context.Context, from source.Source, _ []string) error {
				instance, err := from.Instance(ctx, id)
				if err := a.usable(err); err != nil {
					return err
				}
				if err := a.answer(fmt.Sprintf("%s is %s", id, instance.State), instance); err != nil {
					return err
				}
				if instance.State != tenure.InstanceActive && a.stale == nil { // how it is now is not known
					return &exitError{code: exitNot}
				}
				return nil
			})(command, nil)
		},
	}
	command.Flags().StringVar(&at, "url", "", "of the probe, such as http://127.0.0.1:8080/readyz")
	command.Flags().StringVar(&id, "instance", "", "its ID (TENURE_INSTANCE_ID, HOSTNAME)")
	return command
}

// probeAnswer is what an instance itself has said, for programs.
type probeAnswer struct {
	OK     bool   `json:"ok"`
	Status int    `json:"status"`
	Text   string `json:"text"`
}

// probe asks an instance itself.
func (a *app) probe(command *cobra.Command, at string) error {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("--url must look like http://HOST:PORT/readyz")
	}
	authorities, err := a.settings.Authorities()
	if err != nil {
		return err
	}
	ctx, cancel := a.bound(command)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	client := http.Client{
		Transport:     source.Transport(authorities),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	switch {
	case err != nil && command.Context().Err() != nil: // an interrupt says nothing of the instance
		return context.Canceled
	case err != nil:
		return &exitError{exitNot, err.Error()}
	}
	_ = response.Body.Close()
	answer := probeAnswer{response.StatusCode/100 == 2, response.StatusCode, response.Status}
	if err := a.answer(answer.Text, answer); err != nil {
		return err
	}
	if !answer.OK {
		return &exitError{code: exitNot}
	}
	return nil
}

// release is set by the build of a release.
var release string

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Which version this is", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			version := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				System  string `json:"system"`
			}{release, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				version.Version = cmp.Or(version.Version, info.Main.Version, "unknown")
			}
			if a.format.Person() {
				fmt.Fprintf(a.out, "tenure %s, %s, %s\n", version.Version, version.Go, version.System)
				return nil
			}
			return out.Value(a.out, a.format, version)
		},
	}
}
