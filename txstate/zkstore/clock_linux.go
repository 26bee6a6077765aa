package zkstore

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is a clock that nobody sets, and that runs on while the process, or the machine, is suspended.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("zkstore: CLOCK_BOOTTIME: " + err.Error()) // every Linux that Go runs on has it
	}
	return time.Duration(ts.Nano())
}
