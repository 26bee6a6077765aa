package kafka

import (
	"github.com/hashicorp/go-hclog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// NewLogger passes the client's log on to an hclog.Logger, one level lower: what a client calls an error here, a
// lost connection, is the normal business of an emitter, which reports what matters itself.
func NewLogger(log hclog.Logger) kgo.Logger {
	if log == nil {
		log = hclog.NewNullLogger()
	}
	return logger{log.Named("client")}
}

type logger struct{ log hclog.Logger }

func (l logger) Level() kgo.LogLevel {
	switch {
	case l.log.IsTrace():
		return kgo.LogLevelDebug
	case l.log.IsDebug():
		return kgo.LogLevelInfo
	case l.log.IsInfo():
		return kgo.LogLevelWarn
	case l.log.IsWarn():
		return kgo.LogLevelError
	}
	return kgo.LogLevelNone
}

func (l logger) Log(level kgo.LogLevel, msg string, kv ...any) {
	switch level {
	case kgo.LogLevelError:
		l.log.Warn(msg, kv...)
	case kgo.LogLevelWarn:
		l.log.Info(msg, kv...)
	case kgo.LogLevelInfo:
		l.log.Debug(msg, kv...)
	case kgo.LogLevelDebug:
		l.log.Trace(msg, kv...)
	case kgo.LogLevelNone:
	}
}
