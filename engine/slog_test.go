package engine_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/tridentd/tridentd/engine"
)

func TestSlogLogger(t *testing.T) {
	var out bytes.Buffer
	h := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	l := engine.SlogLogger(slog.New(h)).With("pipeline", "words").Named("exec")
	l.Debug("not shown")
	l.Info("committed", "txid", 7)
	l.Error("failed", "code", "timeout")
	want := "level=INFO msg=committed pipeline=words logger=exec txid=7\nlevel=ERROR msg=failed pipeline=words logger=exec code=timeout\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if l.IsDebug() || !l.IsInfo() || l.GetLevel() != hclog.Info {
		t.Errorf("debug %v, info %v, level %v: the handler's level is info", l.IsDebug(), l.IsInfo(), l.GetLevel())
	}
}
