package storm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/internal/zkconn"
)

// Ensemble reads nodes of a ZooKeeper ensemble.
type Ensemble struct {
	conn *zk.Conn
}

var _ Nodes = (*Ensemble)(nil)

// Connect returns the nodes of an ensemble.
func Connect(cfg zkconn.Config) (*Ensemble, error) {
	c, _, err := zk.Connect(cfg.Servers, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	return &Ensemble{c}, nil
}

// Get implements Nodes.
func (e *Ensemble) Get(_ context.Context, path string) (data []byte, ok bool, err error) {
	data, _, err = e.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	return data, true, nil
}

// Children implements Nodes.
func (e *Ensemble) Children(_ context.Context, path string) (names []string, ok bool, err error) {
	names, _, err = e.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	slices.Sort(names)
	return names, true, nil
}

// Close ends the session.
func (e *Ensemble) Close(context.Context) error {
	e.conn.Close()
	return nil
}
