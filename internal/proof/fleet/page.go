//go:build unix

package fleet

import (
	"errors"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/internal/proof/hostclock"
)

// page is memory that a member of the fleet shares with its cluster. What a process believed to the
// last stays readable when it has been killed, which no message could do.
type page struct {
	memory []byte
	*beliefs
}

// beliefs is what a page holds.
type beliefs struct {
	token atomic.Int64 // of the term that is believed in, or was last; 0: none yet
	first atomic.Int64 // readings of the host's clock
	last  atomic.Int64
	told  atomic.Int64 // token of the last term whose end the process has told by itself

	deadline atomic.Int64 // the last that was seen of its lease
}

// openPage maps the page of that name, which is made if it is missing.
func openPage(path string) (*page, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the mapping stays
	size := int(unsafe.Sizeof(beliefs{}))
	if err := file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &page{memory: memory, beliefs: (*beliefs)(unsafe.Pointer(unsafe.SliceData(memory)))}, nil //nolint:gosec // aligned to a page
}

// close ends the mapping; nothing may be read any more.
func (p *page) close() error {
	if p.memory == nil {
		return errors.New("the page was closed before")
	}
	memory := p.memory
	p.memory, p.beliefs = nil, nil
	return unix.Munmap(memory)
}

// begin says that a term is believed in from now on.
func (b *beliefs) begin(token int64, first, last time.Duration) {
	b.token.Store(0)
	b.first.Store(int64(first))
	b.last.Store(int64(last))
	b.token.Store(token)
}

// fresh reports whether the process believed to lead within the time given.
func (b *beliefs) fresh(within time.Duration) (token int64, ok bool) {
	token = b.token.Load()
	return token, token != 0 && token != b.told.Load() && hostclock.Now()-time.Duration(b.last.Load()) < within
}

// untold is the belief of a process that is gone, if it could not report it by itself.
func (b *beliefs) untold() (led Entry, ok bool) {
	token := b.token.Load()
	return Entry{Kind: Led, Token: token, At: time.Duration(b.first.Load()), Until: time.Duration(b.last.Load())},
		token != 0 && token != b.told.Load()
}
