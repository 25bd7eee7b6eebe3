package redistest

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

// The proxy cuts both streams into whole requests and replies (RESP2 and RESP3), so that it can
// answer, lose or hold single ones. A stream that is something else (TLS, replication) is passed on
// as it is.

// errNotRESP says that the bytes returned with it are not RESP, and that nothing after them will be
// taken for it.
var errNotRESP = errors.New("not RESP")

const (
	mostBulk  = 64 << 20 // longest string that is taken for one
	mostDepth = 32       // deepest nesting of a reply
)

// First bytes.
const (
	sizedTypes   = "$=!*~>%|"
	replyTypes   = "+-:_,#(" + sizedTypes
	requestTypes = "*\r\nabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// frame is one request or one reply, or a piece of a stream that is not RESP.
type frame struct {
	raw  []byte
	args []string // of a request; none: it is not answered
}

// push reports whether a reply is out of band: a RESP3 push, which answers no request.
func (f frame) push() bool { return len(f.raw) > 0 && f.raw[0] == '>' }

// readRequest reads one request: an array of strings, or a line of words. Bytes read are in the
// frame even with an error.
func readRequest(r *bufio.Reader) (frame, error) {
	raw, n, err := readHead(r, nil, requestTypes)
	if err != nil {
		return frame{raw: raw}, err
	}
	if raw[0] != '*' {
		return frame{raw: raw, args: strings.Fields(string(raw))}, nil
	}
	var args []string
	for range n {
		var size int64
		if raw, size, err = readHead(r, raw, "$"); err != nil {
			return frame{raw: raw}, err
		}
		if size < 0 {
			return frame{raw: raw}, errNotRESP
		}
		if raw, err = readBody(r, raw, size); err != nil {
			return frame{raw: raw}, err
		}
		args = append(args, string(raw[int64(len(raw))-size-2:len(raw)-2]))
	}
	return frame{raw: raw, args: args}, nil
}

// readReply reads one reply of any type.
func readReply(r *bufio.Reader) (frame, error) {
	raw, err := readValue(r, nil, mostDepth)
	return frame{raw: raw}, err
}

// readValue appends one value to raw.
func readValue(r *bufio.Reader, raw []byte, depth int) ([]byte, error) {
	if depth == 0 {
		return raw, errNotRESP
	}
	start := len(raw)
	raw, n, err := readHead(r, raw, replyTypes)
	if err != nil {
		return raw, err
	}
	parts := int64(0)
	switch raw[start] {
	case '$', '=', '!':
		if n >= 0 {
			return readBody(r, raw, n)
		}
	case '*', '~', '>':
		parts = n // a null array has −1
	case '%':
		parts = 2 * n
	case '|': // attributes stand before the value that they belong to
		parts = 2*n + 1
	}
	for ; parts > 0; parts-- {
		if raw, err = readValue(r, raw, depth-1); err != nil {
			return raw, err
		}
	}
	return raw, nil
}

// readHead appends one line to raw and returns the number that follows its first byte, if that
// byte wants one. The first byte is one of those given, or this is not RESP: other streams need not
// hold a line end to wait for.
func readHead(r *bufio.Reader, raw []byte, types string) ([]byte, int64, error) {
	first, err := r.Peek(1)
	if err != nil {
		return raw, 0, err
	}
	if strings.IndexByte(types, first[0]) < 0 {
		return raw, 0, errNotRESP
	}
	start := len(raw)
	for {
		line, err := r.ReadSlice('\n')
		raw = append(raw, line...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(raw)-start < mostBulk:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return raw, 0, errNotRESP
		case err != nil:
			return raw, 0, err
		}
		break
	}
	if strings.IndexByte(sizedTypes, first[0]) < 0 {
		return raw, 0, nil
	}
	n, err := strconv.ParseInt(strings.TrimRight(string(raw[start+1:]), "\r\n"), 10, 64)
	if err != nil || n < -1 || n > mostBulk {
		return raw, 0, errNotRESP
	}
	return raw, n, nil
}

// readBody appends the bytes of a string and the line end after them, piece by piece: what was
// announced need not come.
func readBody(r *bufio.Reader, raw []byte, size int64) ([]byte, error) {
	const piece = 64 << 10
	for left := size + 2; left > 0; {
		start := len(raw)
		raw = append(raw, make([]byte, min(left, piece))...)
		n, err := io.ReadFull(r, raw[start:])
		raw = raw[:start+n]
		if err != nil {
			return raw, err
		}
		left -= int64(n)
	}
	if string(raw[len(raw)-2:]) != "\r\n" {
		return raw, errNotRESP
	}
	return raw, nil
}
