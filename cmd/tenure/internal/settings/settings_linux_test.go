package settings

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestHomeOfAnotherUser: one who may not look into it has no file there. A file that is there must
// be readable.
func TestHomeOfAnotherUser(t *testing.T) {
	_ = loaded(t, "", nil)
	home := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(home), 0o755)) // which the test has for itself otherwise
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	folder, err := os.UserConfigDir()
	require.NoError(t, err)
	path := filepath.Join(folder, "tenure", "config.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, nil, 0o000))
	require.ErrorIs(t, loadedByAnother(t), os.ErrPermission)
	require.NoError(t, os.Chmod(home, 0o000))
	defer func() { _ = os.Chmod(home, 0o700) }()
	require.NoError(t, loadedByAnother(t))
}

// loadedByAnother loads the default file as a user who may look only where all may. Root takes
// another user for that, in the eyes of the file system.
func loadedByAnother(t *testing.T) error {
	t.Helper()
	if os.Geteuid() == 0 {
		const nobody = 65534
		runtime.LockOSThread() // it is a thread that takes the user
		defer runtime.UnlockOSThread()
		_, _ = unix.SetfsuidRetUid(nobody)
		defer func() { _, _ = unix.SetfsuidRetUid(0) }()
		now, err := unix.SetfsuidRetUid(-1) // which changes nothing
		require.NoError(t, err)
		require.Equal(t, nobody, now)
	}
	_, err := Load("")
	return err
}
