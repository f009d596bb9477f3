//go:build profile

package boot

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
)

// A program that is built with the tag profile, as by make profile, takes its
// own profiles. The first SIGUSR1 starts the CPU profile. The second one ends
// it, and writes it as NAME.cpu.pprof and the heap as NAME.heap.pprof into the
// working directory. Other builds contain none of this.
func init() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for range signals {
			if err := profile(filepath.Base(os.Args[0]), signals); err != nil {
				fmt.Fprintln(os.Stderr, "profile:", err)
			}
		}
	}()
}

func profile(name string, end <-chan os.Signal) error {
	cpu, err := os.Create(name + ".cpu.pprof")
	if err != nil {
		return err
	}
	defer func() { _ = cpu.Close() }()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	<-end
	pprof.StopCPUProfile()
	unfinished := name + ".heap.unfinished"
	heap, err := os.Create(unfinished)
	if err != nil {
		return err
	}
	defer func() { _ = heap.Close() }()
	runtime.GC() // so that what is in use is up to date
	if err := pprof.WriteHeapProfile(heap); err != nil {
		return err
	}
	return os.Rename(unfinished, name+".heap.pprof") // the last of both: they are complete
}
