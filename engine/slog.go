package engine

import (
	"context"
	"io"
	"log" //nolint:depguard // hclog.Logger asks for it
	"log/slog"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// SlogLogger makes an Options.Logger that writes to l. Levels are l's handler's business; trace is four below debug.
func SlogLogger(l *slog.Logger) hclog.Logger { return &slogLogger{l: l} }

type slogLogger struct {
	l    *slog.Logger
	name string
	args []any
}

const slogTrace = slog.LevelDebug - 4

var slogLevels = map[hclog.Level]slog.Level{
	hclog.Trace: slogTrace, hclog.Debug: slog.LevelDebug, hclog.Info: slog.LevelInfo, hclog.Warn: slog.LevelWarn, hclog.Error: slog.LevelError,
}

func (s *slogLogger) Log(level hclog.Level, msg string, args ...any) {
	if to, ok := slogLevels[level]; ok {
		s.l.Log(context.Background(), to, msg, args...)
	}
}

func (s *slogLogger) Trace(msg string, args ...any) { s.Log(hclog.Trace, msg, args...) }
func (s *slogLogger) Debug(msg string, args ...any) { s.Log(hclog.Debug, msg, args...) }
func (s *slogLogger) Info(msg string, args ...any)  { s.Log(hclog.Info, msg, args...) }
func (s *slogLogger) Warn(msg string, args ...any)  { s.Log(hclog.Warn, msg, args...) }
func (s *slogLogger) Error(msg string, args ...any) { s.Log(hclog.Error, msg, args...) }

func (s *slogLogger) enabled(l hclog.Level) bool {
	return s.l.Enabled(context.Background(), slogLevels[l])
}

func (s *slogLogger) IsTrace() bool { return s.enabled(hclog.Trace) }
func (s *slogLogger) IsDebug() bool { return s.enabled(hclog.Debug) }
func (s *slogLogger) IsInfo() bool  { return s.enabled(hclog.Info) }
func (s *slogLogger) IsWarn() bool  { return s.enabled(hclog.Warn) }
func (s *slogLogger) IsError() bool { return s.enabled(hclog.Error) }

func (s *slogLogger) ImpliedArgs() []any { return s.args }

func (s *slogLogger) With(args ...any) hclog.Logger {
	return &slogLogger{l: s.l.With(args...), name: s.name, args: append(slices.Clip(s.args), args...)}
}

func (s *slogLogger) Name() string { return s.name }

func (s *slogLogger) Named(name string) hclog.Logger {
	if s.name != "" {
		name = s.name + "." + name
	}
	return s.ResetNamed(name)
}

func (s *slogLogger) ResetNamed(name string) hclog.Logger {
	return &slogLogger{l: s.l.With("logger", name), name: name, args: s.args}
}

// SetLevel does nothing: the handler's level counts.
func (s *slogLogger) SetLevel(hclog.Level) {}

func (s *slogLogger) GetLevel() hclog.Level {
	for l := hclog.Trace; l <= hclog.Error; l++ {
		if s.enabled(l) {
			return l
		}
	}
	return hclog.Off
}

func (s *slogLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(s.l.Handler(), slog.LevelInfo)
}

func (s *slogLogger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return s.StandardLogger(o).Writer()
}
