//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// sample is what a process holds at a moment. Memory is in KiB.
type sample struct {
	when    string
	rss     int
	pss     int
	files   int // descriptors
	threads int
	waiting int // sockets in TIME_WAIT, of the whole machine
}

// take reads /proc/PID; pid 0 holds nothing.
func takeSample(pid int, when string) (sample, error) {
	s := sample{when: when}
	if pid == 0 {
		return s, nil
	}
	dir := fmt.Sprintf("/proc/%d/", pid)
	files, err := os.ReadDir(dir + "fd")
	if err != nil {
		return s, err
	}
	s.files = len(files)
	for _, f := range []struct {
		path, name string
		to         *int
	}{
		{dir + "smaps_rollup", "Rss:", &s.rss},
		{dir + "smaps_rollup", "Pss:", &s.pss},
		{dir + "status", "Threads:", &s.threads},
		{"/proc/net/sockstat", "tw", &s.waiting},
	} {
		if *f.to, err = numberBehind(f.path, f.name); err != nil {
			return s, err
		}
	}
	return s, nil
}

// numberBehind finds the number that stands behind a word in a file.
func numberBehind(path, word string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	words := bytes.Fields(b)
	for i, w := range words[:max(len(words)-1, 0)] {
		if string(w) == word {
			return strconv.Atoi(string(words[i+1]))
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, word)
}

// maximum joins two samples.
func (s sample) maximum(o sample) sample {
	s.rss, s.pss = max(s.rss, o.rss), max(s.pss, o.pss)
	s.files, s.threads = max(s.files, o.files), max(s.threads, o.threads)
	s.waiting = max(s.waiting, o.waiting)
	return s
}

// spareFiles is how many descriptors a process needs besides its connections.
const spareFiles = 64

// enoughFiles tells whether a process may hold that many connections. The Go
// runtime has raised the soft limit to the hard one, and does so in the others.
func enoughFiles(connections int) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	if need := uint64(connections + spareFiles); l.Max < need {
		return fmt.Errorf("the hard limit of open files is %d, and the proxy needs %d; raise it with ulimit -Hn or ask for fewer -sessions", l.Max, need)
	}
	return nil
}
