package simnet

import (
	"bytes"
	"errors"
	"strconv"
)

var errProtocol = errors.New("simnet: not a RESP request")

// parseRequest takes one request, an array of bulk strings, off the front of b. It returns nil, 0
// while the request is incomplete.
func parseRequest(b []byte) (args []string, size int, err error) {
	count, at, err := parseHeader(b, 0, '*')
	if at == 0 || err != nil {
		return nil, 0, err
	}
	if count < 1 {
		return nil, 0, errProtocol
	}
	args = make([]string, 0, count)
	for range count {
		length, next, err := parseHeader(b, at, '$')
		if next == 0 || err != nil {
			return nil, 0, err
		}
		if length < 0 {
			return nil, 0, errProtocol
		}
		if len(b) < next+length+2 {
			return nil, 0, nil
		}
		args = append(args, string(b[next:next+length]))
		at = next + length + 2
	}
	return args, at, nil
}

// parseHeader reads "<mark><number>\r\n" at b[at:]; next is 0 while it is incomplete.
func parseHeader(b []byte, at int, mark byte) (number, next int, err error) {
	if at >= len(b) {
		return 0, 0, nil
	}
	if b[at] != mark {
		return 0, 0, errProtocol
	}
	end := bytes.IndexByte(b[at:], '\n')
	if end < 0 {
		return 0, 0, nil
	}
	number, err = strconv.Atoi(string(b[at+1 : at+end-1]))
	if err != nil {
		return 0, 0, errProtocol
	}
	return number, at + end + 1, nil
}
