package ledger_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"reprieve.dev/ledger"
)

// A process that opens its ledger twice, as a reload does, must keep the locks of the first time: without them any other program
// that closes the file deletes the write-ahead log under it, and what is written afterwards is lost.
func TestOpeningALedgerAgainKeepsItsLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	first, err := ledger.Open(t.Context(), "sqlite:"+path, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	again, err := ledger.Open(t.Context(), "sqlite:"+path, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path) // closing it drops the locks: this is the last thing done
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const ofdGetLock = 36 // F_OFD_GETLK asks as a stranger does: locks of this process count
	shared := syscall.Flock_t{Type: syscall.F_WRLCK, Start: 0x40000002, Len: 510}
	if err := syscall.FcntlFlock(f.Fd(), ofdGetLock, &shared); err != nil {
		t.Fatal(err)
	}
	if shared.Type == syscall.F_UNLCK {
		t.Error("nobody holds a lock on a ledger that is open")
	}
}
