package sandbox

import (
	"os"
	"testing"
)

func TestMemoryIsWhatAProcessHasForItself(t *testing.T) {
	const status = "Name:\tplugin\nVmPeak:\t 9999999 kB\nVmRSS:\t  300000 kB\nRssAnon:\t  200000 kB\nRssFile:\t  100000 kB\nRssShmem:\t 5 kB\nVmPTE:\t     48 kB\nVmSwap:\t   1000 kB\nThreads:\t4\n"
	if got, want := heldBytes([]byte(status)), int64(201048)<<10; got != want {
		t.Errorf("%d, want %d", got, want)
	}
	if got := heldBytes([]byte("RssAnon:\t12")); got != 12<<10 { // cut where the buffer ended
		t.Error(got)
	}
	if got := heldBytes(nil); got != 0 {
		t.Error(got)
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if got := heldBytes(own); got < 1<<20 || got > 16<<30 {
		t.Errorf("this process has %d bytes", got)
	}
}
