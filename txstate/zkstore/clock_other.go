//go:build !linux

package zkstore

import "time"

var began = time.Now()

// sinceBoot is a clock that nobody sets, and that runs on while the process is suspended.
func sinceBoot() time.Duration { return time.Since(began) }
