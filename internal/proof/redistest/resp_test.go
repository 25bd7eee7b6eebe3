package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// request returns a command as a client sends it.
func request(cmd ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(cmd))
	for _, arg := range cmd {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

func TestReadRequest(t *testing.T) {
	binary := "\x00\r\n\xff"
	long := strings.Repeat("x", 100_000)
	for _, tc := range []struct {
		in   string
		args []string
		rest int // bytes that belong to the next request
	}{
		{request("SET", "k", binary), []string{"SET", "k", binary}, 0},
		{request("PING") + request("PING"), []string{"PING"}, 14},
		{request("SET", "k", long, ""), []string{"SET", "k", long, ""}, 0},
		{"PING  now\r\n", []string{"PING", "now"}, 0},
		{"\r\n", nil, 0},
		{"*0\r\n", nil, 0},
	} {
		r := bufio.NewReader(strings.NewReader(tc.in))
		f, err := readRequest(r)
		if err != nil || !slices.Equal(f.args, tc.args) || string(f.raw) != tc.in[:len(tc.in)-tc.rest] {
			t.Errorf("%.40q: %.40q, args %.40q, %v", tc.in, f.raw, f.args, err)
		}
	}
}

func TestReadReply(t *testing.T) {
	for _, in := range []string{
		"+OK\r\n", "-ERR no\r\n", ":-5\r\n", "$-1\r\n", "$0\r\n\r\n", "$4\r\n\r\n\r\n\r\n", "*-1\r\n", "*0\r\n",
		"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", "_\r\n", ",1.5\r\n", "#t\r\n", "(12345678901234567890\r\n", "!5\r\nERR x\r\n",
		"=7\r\ntxt:abc\r\n", "%1\r\n+k\r\n~2\r\n:1\r\n:2\r\n", ">2\r\n+message\r\n$1\r\na\r\n", "|1\r\n+a\r\n:1\r\n+OK\r\n",
	} {
		f, err := readReply(bufio.NewReader(strings.NewReader(in + "+NEXT\r\n")))
		if err != nil || string(f.raw) != in {
			t.Errorf("%q: %q, %v", in, f.raw, err)
		}
	}
}

func TestRead_NotRESP(t *testing.T) {
	for _, in := range []string{
		"\x16\x03\x01", "*1\r\n:1\r\n", "*x\r\n", "$-2\r\n", "$99999999999\r\n", "*1\r\n$1\r\nab\r\n",
	} {
		read := readRequest
		if in[0] == '$' {
			read = readReply
		}
		f, err := read(bufio.NewReader(strings.NewReader(in)))
		if !errors.Is(err, errNotRESP) || !strings.HasPrefix(in, string(f.raw)) {
			t.Errorf("%q: %q, %v", in, f.raw, err)
		}
	}
	deep := strings.Repeat("*1\r\n", mostDepth+1)
	if _, err := readReply(bufio.NewReader(strings.NewReader(deep))); !errors.Is(err, errNotRESP) {
		t.Errorf("deep nesting: %v", err)
	}
}

// Whatever arrives, every byte is passed on, once and in order.
func FuzzRead(f *testing.F) {
	f.Add([]byte(request("SET", "k", "v") + "PING\r\n"))
	f.Add([]byte("*2\r\n$1\r\na\r\n"))
	f.Add([]byte("%1\r\n+k\r\n>1\r\n:1\r\n"))
	f.Add([]byte("$5\r\nabc"))
	f.Add([]byte("\x16\x03\x01\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for name, read := range map[string]func(*bufio.Reader) (frame, error){"request": readRequest, "reply": readReply} {
			r := bufio.NewReader(bytes.NewReader(in))
			var out []byte
			for {
				f, err := read(r)
				out = append(out, f.raw...)
				if err != nil {
					break
				}
			}
			rest, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if out = append(out, rest...); !bytes.Equal(out, in) {
				t.Errorf("%s: %q became %q", name, in, out)
			}
		}
	})
}
