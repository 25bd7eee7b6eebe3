package settings

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// loaded are the settings of a file and of an environment that has nothing else of tenure.
func loaded(t *testing.T, file string, variables map[string]string) *Settings {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, Prefix+"_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range variables {
		t.Setenv(name, value)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	s, err := Load(path)
	require.NoError(t, err)
	return s
}

// TestWhatStandsForEachOther: a flag is stronger than the environment, and that is stronger than
// the file, also if they say the same thing by other names.
func TestWhatStandsForEachOther(t *testing.T) {
	s := loaded(t, "namespace: shop", map[string]string{
		"TENURE_REDIS_HOST": "other", "TENURE_REDIS_PORT": "6380", "TENURE_REDIS_DB": "1", "TENURE_REDIS_PASSWORD": "secret",
		"TENURE_ADDRESS_HOST": "10.0.0.7", "TENURE_ADDRESS_PORT": "8080", "TENURE_ADDRESS_SCHEME": "https",
	})
	require.NoError(t, s.Flag("redis_url", "redis", "redis://here:6379"))
	require.NoError(t, s.Flag("address", "address", "http://here:80"))
	o, err := s.Options()
	require.NoError(t, err)
	require.NoError(t, o.Redis.Close())
	require.Equal(t, "http://here:80", o.Options.Registry.Address)
	require.Equal(t, "10.0.0.7", os.Getenv("TENURE_ADDRESS_HOST"), "the environment is as it was")

	s = loaded(t, "namespace: shop\nredis_url: redis://here\nredis_password: old\naddress: here:80", map[string]string{
		"TENURE_REDIS_HOST": "there", "TENURE_ADDRESS_HOST": "::1", "TENURE_ADDRESS_PORT": "8080", "TENURE_REDIS_PASSWORD_FILE": "/no/such/file",
	})
	require.Empty(t, s.Text("redis_url"))
	_, err = s.Options()
	require.ErrorContains(t, err, "/no/such/file")

	s = loaded(t, "namespace: shop\nredis_host: here\naddress_host: '::1'\naddress_port: 80\naddress_scheme: https", nil)
	o, err = s.Options()
	require.NoError(t, err)
	require.NoError(t, o.Redis.Close())
	require.Equal(t, "https://[::1]:80", o.Options.Registry.Address)

	s = loaded(t, "api: http://here\napi_user: ann\napi_password: secret", map[string]string{"TENURE_API_TOKEN": "token"})
	api, err := s.API()
	require.NoError(t, err)
	require.Equal(t, &API{URL: "http://here", Token: "token"}, api)

	// What one place says twice is a mistake as before.
	s = loaded(t, "", map[string]string{"TENURE_NAMESPACE": "shop", "TENURE_REDIS_URL": "redis://here", "TENURE_REDIS_HOST": "there"})
	_, err = s.Options()
	require.ErrorContains(t, err, "must not be set beside")
}

// TestPortOfKubernetes: what it sets for a Service tenure-redis takes nothing out of the file.
func TestPortOfKubernetes(t *testing.T) {
	s := loaded(t, "namespace: shop\nredis_host: here\nredis_port: 6380\naddress: here:80", map[string]string{
		"TENURE_REDIS_PORT": "tcp://10.96.7.8:6379", "TENURE_ADDRESS_PORT": "tcp://10.96.7.9:80",
	})
	o, err := s.Options()
	require.NoError(t, err)
	require.NoError(t, o.Redis.Close())
	require.Equal(t, "here:6380", o.Redis.(*redis.Client).Options().Addr)
	require.Equal(t, "here:80", o.Options.Registry.Address)
}

// TestFlagsHaveNoPassword, in whatever part of a URL: everybody on the machine could read it.
func TestFlagsHaveNoPassword(t *testing.T) {
	s := loaded(t, "", nil)
	for _, secret := range []string{"redis://:secret@here", "redis://ann:secret@here", "redis://here?password=secret", "redis://here?master_name=m&sentinel_password=secret"} {
		err := s.Flag("redis_url", "redis", secret)
		require.ErrorContains(t, err, "--redis: a password in it", secret)
		require.NotContains(t, err.Error(), "secret@")
		require.Empty(t, s.Text("redis_url"))
	}
	require.NoError(t, s.Flag("redis_url", "redis", "redis://ann@here"))
	require.Equal(t, "redis://ann@here", s.Text("redis_url"))
	require.True(t, s.IsFlag("redis_url"))
	require.NoError(t, s.Flag("reason", "reason", "http://a:b@here"), "another flag may say what it likes")
}

// TestWhoIsAsked: an API is stronger than a Redis that no flag names, and two flags are a mistake.
// A flag without a value takes nothing else out.
func TestWhoIsAsked(t *testing.T) {
	const api, redis = "http://api", "redis://here"
	for name, row := range map[string]struct {
		file, flag [2]string // an API, and a Redis
		asked      string
		wrong      string
	}{
		"nothing":        {},
		"the API":        {file: [2]string{api, redis}, asked: api},
		"Redis":          {file: [2]string{api, ""}, flag: [2]string{"", redis}},
		"API by a flag":  {file: [2]string{"", redis}, flag: [2]string{api, ""}, asked: api},
		"both by a flag": {flag: [2]string{api, redis}, wrong: "--api and --redis"},
	} {
		file := ""
		for i, name := range []string{"api", "redis_url"} {
			if row.file[i] != "" {
				file += name + ": " + row.file[i] + "\n"
			}
		}
		s := loaded(t, file, nil)
		for i, name := range []string{"api", "redis_url"} {
			if row.flag[i] != "" {
				require.NoError(t, s.Flag(name, name, row.flag[i]))
			}
		}
		asked, err := s.API()
		if row.wrong != "" {
			require.ErrorContains(t, err, row.wrong, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, row.asked == "", asked == nil, name)
		if asked != nil {
			require.Equal(t, row.asked, asked.URL, name)
		}
	}
	s := loaded(t, "api: http://api\napi_password: secret", nil)
	_, err := s.API()
	require.ErrorContains(t, err, "a password needs a user")
	s = loaded(t, "api: http://api\napi_user: ann\napi_password: secret", nil)
	asked, err := s.API()
	require.NoError(t, err)
	require.Equal(t, &API{URL: api, User: "ann", Password: "secret"}, asked)
	s = loaded(t, "api: http://api\napi_token_file: /no/such/file", nil)
	_, err = s.API()
	require.ErrorContains(t, err, "/no/such/file")
	s = loaded(t, "redis_host: here", nil)
	require.NoError(t, s.Flag("redis_url", "redis", ""))
	require.Equal(t, "here", s.Text("redis_host"))
}

// TestNoSettingIsForNothing: a file has no name in it that nobody reads.
func TestNoSettingIsForNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte("min_instances: 3"), 0o600))
	_, err := Load(path)
	require.ErrorContains(t, err, `"min_instances" is no setting`)
}

// TestWhereTheFileIs: a file that was asked for must be there. The one in the folder of the user
// need not be, and neither need the folder.
func TestWhereTheFileIs(t *testing.T) {
	_ = loaded(t, "", nil)
	missing, home := filepath.Join(t.TempDir(), "missing.yaml"), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	folder, err := os.UserConfigDir()
	require.NoError(t, err)
	s, err := Load("")
	require.NoError(t, err)
	require.Empty(t, s.Text("namespace"))

	write := func(path, namespace string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("namespace: "+namespace), 0o600))
	}
	at := func(path string) string {
		s, err := Load(path)
		require.NoError(t, err)
		return s.Text("namespace")
	}
	write(filepath.Join(folder, "tenure", "config.yaml"), "of-the-user")
	require.Equal(t, "of-the-user", at(""))
	named, asked := filepath.Join(home, "named.yaml"), filepath.Join(home, "asked.yaml")
	write(named, "named")
	write(asked, "asked-for")
	t.Setenv("TENURE_CONFIG", named)
	require.Equal(t, "named", at(""))
	require.Equal(t, "asked-for", at(asked))

	_, err = Load(missing)
	require.ErrorContains(t, err, missing)
	t.Setenv("TENURE_CONFIG", missing)
	_, err = Load("")
	require.ErrorContains(t, err, missing)
	t.Setenv("TENURE_CONFIG", "")
	require.NoError(t, os.Remove(filepath.Join(folder, "tenure", "config.yaml")))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "tenure", "config.yaml"), 0o700))
	_, err = Load("")
	require.ErrorContains(t, err, "config file", "it is there, and cannot be read")
	t.Setenv("HOME", "")
	require.Empty(t, at(""), "who has no home has no file")
}

// TestHomeThatIsNoFolder: a daemon may have /dev/null for its home, or that of root, from whom it
// was started: nobody has asked for a file there.
func TestHomeThatIsNoFolder(t *testing.T) {
	_ = loaded(t, "", nil)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(os.DevNull, "config"))
	t.Setenv("HOME", os.DevNull)
	_, err := Load("")
	require.NoError(t, err)
	_, err = Load(filepath.Join(os.DevNull, "config.yaml"))
	require.ErrorContains(t, err, "config file", "it was asked for")
	t.Setenv("TENURE_CONFIG", filepath.Join(os.DevNull, "config.yaml"))
	_, err = Load("")
	require.ErrorContains(t, err, "config file", "it was asked for")
}

// TestWhatAFileMaySay: one value a name. One that is empty says nothing.
func TestWhatAFileMaySay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	for file, want := range map[string]string{
		"namespace: [a, b]": "namespace must be one value", "namespace": `must have one "name: value" a line`, "- namespace": `must have one "name: value" a line`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		_, err := Load(path)
		require.ErrorContains(t, err, want, file)
		require.ErrorContains(t, err, path)
	}
	for _, file := range []string{"redis_password: *hunter2", "hunter2", "- hunter2", "redis_password: 'hunter2", "redis_password: {hunter2: *hunter2"} {
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		_, err := Load(path)
		require.Error(t, err, file)
		require.NotContains(t, err.Error(), "hunter2")
	}
	s := loaded(t, "namespace: ''\nredis_url: ''\nrole: null\nredis_password: ~\nby:", nil)
	require.Empty(t, s.origin)
	_, err := s.Options()
	require.ErrorContains(t, err, "where Redis is")
	require.NoError(t, s.Flag("redis_host", "host", "here"))
	_, err = s.Options()
	require.ErrorContains(t, err, "which namespace is meant")
}

// TestSecretFromAFile: the file has the secret, and a line end behind it.
func TestSecretFromAFile(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("hunter2 \r\n"), 0o600))
	s := loaded(t, "api: http://api\napi_token_file: "+secret, nil)
	api, err := s.API()
	require.NoError(t, err)
	require.Equal(t, "hunter2 ", api.Token)
}

// TestSecretThatIsRotated: who follows an API for days asks with what the file has by now. If it
// cannot be read, or is empty for a moment, the first secret is tried.
func TestSecretThatIsRotated(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write := func(text string) { require.NoError(t, os.WriteFile(secret, []byte(text), 0o600)) }
	for setting, of := range map[string]func(api *API) string{
		"api_token_file: ":                   func(api *API) string { token, _ := api.Secrets(); return token },
		"api_user: ann\napi_password_file: ": func(api *API) string { _, password := api.Secrets(); return password },
	} {
		write("first\n")
		api, err := loaded(t, "api: http://api\n"+setting+secret, nil).API()
		require.NoError(t, err)
		require.Equal(t, "first", of(api))
		write("second\n")
		require.Equal(t, "second", of(api))
		write("")
		require.Equal(t, "first", of(api))
		require.NoError(t, os.Remove(secret))
		require.Equal(t, "first", of(api))
	}
	write("of the file")
	api, err := loaded(t, "api: http://api\napi_token: itself\napi_token_file: "+secret, nil).API()
	require.NoError(t, err)
	token, _ := api.Secrets()
	require.Equal(t, "itself", token)
}

// TestAuthorityOfTheAPI: a file with the authorities that vouch for the API has some.
func TestAuthorityOfTheAPI(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	s := loaded(t, "api: http://api\napi_ca_file: "+write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})), nil)
	api, err := s.API()
	require.NoError(t, err)
	want := x509.NewCertPool()
	want.AddCert(server.Certificate())
	require.True(t, want.Equal(api.Authorities))
	for file, wrong := range map[string]string{write("none.pem", []byte("none")): "none.pem has no certificate in PEM", "/no/such/file": "/no/such/file"} {
		_, err := loaded(t, "api: http://api\napi_ca_file: "+file, nil).API()
		require.ErrorContains(t, err, wrong)
		require.ErrorContains(t, err, "api_ca_file: ")
	}
}

// TestTheEnvironmentIsAsItWas: what was not set is not, and what was is, also if it is empty.
// Nothing else of it reaches the options.
func TestTheEnvironmentIsAsItWas(t *testing.T) {
	s := loaded(t, "namespace: shop\nredis_host: here", map[string]string{"TENURE_PRIORITY": "", "TENURE_FAIL_FAST": "true"})
	require.NoError(t, s.Flag("role", "role", ""))
	require.NoError(t, os.Unsetenv("TENURE_ROLE"))
	before := os.Environ()
	o, err := s.Options()
	require.NoError(t, err)
	require.NoError(t, o.Redis.Close())
	require.Equal(t, "shop", o.Options.Namespace)
	require.ElementsMatch(t, before, os.Environ())
}

// TestWhatIsWrongIsNamedByItsPlace: each value by the flag, the variable or the line that it stands
// in.
func TestWhatIsWrongIsNamedByItsPlace(t *testing.T) {
	s := loaded(t, "namespace: shop\nredis_host: here\nlease_ttl: soon", map[string]string{"TENURE_PRIORITY": "high"})
	require.NoError(t, s.Flag("redis_db", "db", "first"))
	_, err := s.Options()
	require.ErrorIs(t, err, tenure.ErrMisconfigured)
	for _, want := range []string{`config.yaml: lease_ttl = "soon": `, `TENURE_PRIORITY = "high": `, `--db = "first": `} {
		require.ErrorContains(t, err, want)
	}
}
