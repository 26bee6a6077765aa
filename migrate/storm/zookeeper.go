package storm

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/tridentd/tridentd/internal/zkconn"
)

// Ensemble reads nodes of a ZooKeeper ensemble.
type Ensemble struct {
	conn *zkconn.Conn
}

var _ Nodes = (*Ensemble)(nil)

// Connect checks the settings and begins to connect. A chroot is better written into the paths: one that doesn't exist would be
// made.
func Connect(cfg zkconn.Config) (*Ensemble, error) {
	c, err := zkconn.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Ensemble{c}, nil
}

// Get implements Nodes.
func (e *Ensemble) Get(ctx context.Context, path string) (data []byte, ok bool, err error) {
	data, _, err = e.conn.Get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, false, nil
	}
	return data, err == nil, err
}

// Children implements Nodes.
func (e *Ensemble) Children(ctx context.Context, path string) (names []string, ok bool, err error) {
	names, _, err = e.conn.Children(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, false, nil
	}
	return names, err == nil, err
}

// Close ends the session.
func (e *Ensemble) Close(ctx context.Context) error { return e.conn.Close(ctx) }
