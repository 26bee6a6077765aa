package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is what /proc counts processor time in: a hundredth of a second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// machine is what the processors have done since the machine started.
type machine struct{ busy, all time.Duration }

// readMachine reads /proc/stat. Interrupts and waits for disks aren't counted as busy: they belong to nobody in particular; time
// that the hypervisor took for others is.
func readMachine() (machine, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machine{}, err
	}
	return parseMachine(string(b))
}

func parseMachine(stat string) (machine, error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return machine{}, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var m machine
	for i, s := range f[1:9] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return machine{}, fmt.Errorf("/proc/stat: %w", err)
		}
		t := time.Duration(n) * tick
		m.all += t
		switch i {
		case 0, 1, 2, 7: // user, nice, system, stolen
			m.busy += t
		}
	}
	return m, nil
}

// processorTime is what a process has used so far, its ended children left out.
func processorTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseProcess(string(b))
}

func parseProcess(stat string) (time.Duration, error) {
	// The second field is the program's name in brackets, and may hold anything.
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12
	if len(f) <= system {
		return 0, fmt.Errorf("/proc/PID/stat is %q", stat)
	}
	var sum int64
	for _, s := range []string{f[user], f[system]} {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}

// peakMemory is the most that a process has had in memory, in bytes.
func peakMemory(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}

// cpuModel names the processor.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// memoryTotal is the machine's memory in bytes; 0 if unknown.
func memoryTotal() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	kb, _ := strconv.ParseInt(f[1], 10, 64)
	return kb << 10
}
