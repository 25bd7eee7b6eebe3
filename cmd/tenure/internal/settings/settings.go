// Package settings finds out which Redis, which namespace and which options a command is about:
// from flags, the environment and a file, in this order.
package settings

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/tenure-go/tenure"
)

// Prefix begins the names of the variables.
const Prefix = "TENURE"

// names are the settings that a file may have, in lower case, and the environment in upper case
// behind the prefix. Those that OptionsFromEnv of package tenure knows mean what they mean there.
var names = []string{
	"redis_url", "redis_cluster", "redis_host", "redis_port", "redis_username", "redis_db", "redis_tls", "redis_password",
	"redis_password_file", "redis_cert_file", "redis_key_file", "redis_ca_file",
	"redis_sentinel_username", "redis_sentinel_password", "redis_sentinel_password_file",
	"namespace", "instance_id", "role", "leader_key", "lease_ttl", "renew_interval", "retry_interval", "drift_margin", "empty_history_wait",
	"hold_off", "restart_guard", "failover_margin", "heartbeat_interval", "heartbeat_ttl", "sweep_interval", "drifted_after", "down_after",
	"shutdown_timeout", "eligible", "priority", "preempt", "spread", "by_instance_id", "address", "address_host", "address_port", "address_scheme",
	"version", "worker_count", "worker_id", "roles", "capabilities", "metadata",
	"by", "output", "timeout",
	"api", "api_token", "api_token_file", "api_user", "api_password", "api_password_file", "api_ca_file",
}

// instead are the settings that another one stands for: one that comes from a stronger place drops
// those of weaker ones.
var instead = map[string][]string{
	"redis_url":  {"redis_host", "redis_port", "redis_username", "redis_db", "redis_tls"},
	"redis_host": {"redis_url"}, "redis_password": {"redis_password_file"}, "redis_password_file": {"redis_password"},
	"redis_sentinel_password": {"redis_sentinel_password_file"}, "redis_sentinel_password_file": {"redis_sentinel_password"},
	"address": {"address_host", "address_port", "address_scheme"}, "address_host": {"address"}, "address_port": {"address"},
	"api_token": append([]string{"api_token_file"}, apiUser...), "api_token_file": append([]string{"api_token"}, apiUser...),
	"api_user":     {"api_token", "api_token_file"},
	"api_password": {"api_password_file"}, "api_password_file": {"api_password"},
}

var apiUser = []string{"api_user", "api_password", "api_password_file"}

// Settings are what was found. The zero value has nothing.
type Settings struct {
	values map[string]string // by name
	origin map[string]string // where each comes from, as an error names it
}

// Load reads the file, if there is one, and the environment. path is the file that was asked for;
// "" is TENURE_CONFIG, else config.yaml in the folder tenure of the user's configuration, which
// need not be there.
func Load(path string) (*Settings, error) {
	s := &Settings{values: make(map[string]string), origin: make(map[string]string)}
	if err := s.readFile(path); err != nil {
		return nil, err
	}
	given := make(map[string]string)
	for _, name := range names {
		value := os.Getenv(variable(name))
		if value == "" || strings.HasSuffix(name, "_port") && strings.HasPrefix(value, "tcp://") { // set by Kubernetes, see OptionsFromEnv
			continue
		}
		given[name] = value
	}
	s.drop(given)
	for name, value := range given {
		s.set(name, value, variable(name))
	}
	return s, nil
}

func variable(name string) string { return Prefix + "_" + strings.ToUpper(name) }

// drop takes out what stronger settings stand for, before they are set themselves.
func (s *Settings) drop(stronger map[string]string) {
	for name := range stronger {
		for _, other := range instead[name] {
			delete(s.values, other)
			delete(s.origin, other)
		}
	}
}

func (s *Settings) set(name, value, origin string) { s.values[name], s.origin[name] = value, origin }

// Flag takes a flag, which is stronger than everything else.
func (s *Settings) Flag(name, flag, value string) error {
	if name == "redis_url" {
		if u, err := url.Parse(value); err == nil && hasPassword(u) {
			return fmt.Errorf("--%s: a password in it would stand in the list of processes (fix: set %s_REDIS_PASSWORD, or redis_password_file in the config file)", flag, Prefix)
		}
	}
	if value != "" {
		s.drop(map[string]string{name: value})
	}
	s.set(name, value, "--"+flag)
	return nil
}

func hasPassword(u *url.URL) bool {
	if _, has := u.User.Password(); has {
		return true
	}
	return u.Query().Has("password") || u.Query().Has("sentinel_password")
}

// IsFlag reports whether a setting comes from a flag.
func (s *Settings) IsFlag(name string) bool { return strings.HasPrefix(s.origin[name], "--") }

// API is the HTTP API that was named, and who asks.
type API struct {
	URL, Token, User, Password string
	Authorities                *x509.CertPool // who vouches for it; nil: those of the system

	tokenFile, passwordFile string // which they were read from; "": from none
}

// Secrets are Token and Password as they are by now: a file may have been rotated since. If it
// cannot be read, or is empty, that is the secret which it had at first.
func (a *API) Secrets() (token, password string) {
	return reread(a.tokenFile, a.Token), reread(a.passwordFile, a.Password)
}

func reread(path, secret string) string {
	if path == "" {
		return secret
	}
	text, err := readSecret(path)
	if err != nil || text == "" {
		return secret
	}
	return text
}

func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimRight(string(text), "\r\n"), err
}

// API returns the API to ask; nil: it is Redis that is to be asked. An API is stronger than a Redis
// that was not named by a flag.
func (s *Settings) API() (*API, error) {
	at := s.Text("api")
	switch {
	case at == "":
		return nil, nil
	case s.IsFlag("redis_url") && s.IsFlag("api"):
		return nil, errors.New("--api and --redis: one of them must be asked (fix: without the other)")
	case s.IsFlag("redis_url"):
		return nil, nil
	}
	if err := errors.Join(s.secret("api_token"), s.secret("api_password")); err != nil {
		return nil, err
	}
	if s.Text("api_user") == "" && s.Text("api_password") != "" {
		return nil, fmt.Errorf("%s: a password needs a user (fix: set %s_API_USER)", s.origin["api_password"], Prefix)
	}
	authorities, err := s.Authorities()
	if err != nil {
		return nil, err
	}
	return &API{
		URL: at, Token: s.Text("api_token"), User: s.Text("api_user"), Password: s.Text("api_password"), Authorities: authorities,
		tokenFile: s.fileOf("api_token"), passwordFile: s.fileOf("api_password"),
	}, nil
}

// fileOf is the file that a secret was read from; "": none was.
func (s *Settings) fileOf(name string) string {
	if path := s.Text(name + "_file"); s.origin[name] == path {
		return path
	}
	return ""
}

// Authorities are those that vouch for a program that is asked over HTTP, by its API or by its
// probe. They are read from a file; nil: none is named, and those of the system do.
func (s *Settings) Authorities() (*x509.CertPool, error) {
	const name = "api_ca_file"
	path := s.Text(name)
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.origin[name], err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %s has no certificate in PEM", s.origin[name], path)
	}
	return pool, nil
}

// Text returns a setting, "" if it is not set.
func (s *Settings) Text(name string) string { return s.values[name] }

// readFile reads name: value pairs.
func (s *Settings) readFile(path string) error {
	asked := path != ""
	if path == "" {
		path = os.Getenv(Prefix + "_CONFIG")
		asked = path != ""
	}
	if path == "" {
		folder, err := os.UserConfigDir()
		if err != nil {
			return nil //nolint:nilerr // there is no home: there is no file
		}
		path = filepath.Join(folder, "tenure", "config.yaml")
	}
	text, err := os.ReadFile(path)
	switch {
	case err != nil && !asked && isAway(path):
		return nil
	case err != nil:
		return fmt.Errorf("config file: %w", err)
	}
	var pairs map[string]yaml.Node
	if err := yaml.Unmarshal(text, &pairs); err != nil {
		return fmt.Errorf("config file %s: it must have one \"name: value\" a line: %s", path, quoted.ReplaceAllString(err.Error(), "…"))
	}
	for name, node := range pairs {
		if !slices.Contains(names, name) {
			return fmt.Errorf("config file %s: %q is no setting (fix: one of %s)", path, name, strings.Join(names, ", "))
		}
		if node.Kind != yaml.ScalarNode {
			return fmt.Errorf("config file %s: %s must be one value", path, name)
		}
		if node.Value != "" && node.Tag != "!!null" { // null, or ~: what a template writes of what it does not have
			s.set(name, node.Value, path+": "+name)
		}
	}
	return nil
}

// quoted are the parts of an error of package yaml that stand in the file: one may be a password.
var quoted = regexp.MustCompile("(?s)anchor '[^']*'|`.*`")

// isAway reports whether there is no such file, as far as this user can see. A program that has
// taken another user may still have the HOME of root, into which it may not look.
func isAway(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR)
}

// Options reads the options and makes the client, which the caller closes. Nothing has talked to
// Redis yet.
func (s *Settings) Options() (tenure.EnvOptions, error) {
	if s.Text("redis_url") == "" && s.Text("redis_host") == "" {
		return tenure.EnvOptions{}, fmt.Errorf("it is not known where Redis is (fix: --redis redis://HOST:6379, or %s_REDIS_URL)", Prefix)
	}
	if s.Text("namespace") == "" {
		return tenure.EnvOptions{}, fmt.Errorf("it is not known which namespace is meant (fix: --namespace NAME, or %s_NAMESPACE: the name of the service)", Prefix)
	}
	options, err := s.read()
	if err != nil {
		return tenure.EnvOptions{}, s.named(err)
	}
	return options, nil
}

// secret reads the file that a secret stands in, unless the secret itself is set.
func (s *Settings) secret(name string) error {
	path := s.Text(name + "_file")
	if path == "" || s.Text(name) != "" {
		return nil
	}
	text, err := readSecret(path)
	if err != nil {
		return fmt.Errorf("%s: %w", s.origin[name+"_file"], err)
	}
	s.set(name, text, path)
	return nil
}

// read has OptionsFromEnv read the settings, so that a variable means the same to every program,
// and puts the environment back.
func (s *Settings) read() (tenure.EnvOptions, error) {
	before := make(map[string]string)
	for _, name := range append(slices.Clone(names), "election", "fail_fast", "default_role", "static_leader") {
		if value, set := os.LookupEnv(variable(name)); set {
			before[variable(name)] = value
		}
		_ = os.Unsetenv(variable(name))
		if value := s.values[name]; value != "" {
			_ = os.Setenv(variable(name), value)
		}
	}
	defer func() {
		for _, name := range names {
			_ = os.Unsetenv(variable(name))
		}
		for name, value := range before {
			_ = os.Setenv(name, value)
		}
	}()
	return tenure.OptionsFromEnv(Prefix)
}

// named names the flag, or the line of the file, that a bad value comes from.
func (s *Settings) named(err error) error {
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return err
	}
	var texts []string
	for _, err := range many.Unwrap() {
		var problem *tenure.OptionError
		if !errors.As(err, &problem) {
			texts = append(texts, err.Error())
			continue
		}
		name := strings.ToLower(strings.TrimPrefix(problem.Field, Prefix+"_"))
		field := problem.Field
		if origin := s.origin[name]; origin != "" {
			field = origin
		}
		texts = append(texts, fmt.Sprintf("%s = %s: %s", field, problem.Value, problem.Reason))
	}
	return fmt.Errorf("%w: %s", tenure.ErrMisconfigured, strings.Join(texts, "; "))
}
