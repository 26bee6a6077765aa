//go:build !linux

package daemon

func memoryTotal() int64 { return 0 }
