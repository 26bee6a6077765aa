package zookeeper

import (
	"github.com/tridentd/tridentd/emitter"
	"github.com/tridentd/tridentd/internal/zkconn"
	"github.com/tridentd/tridentd/txstate"
	"github.com/tridentd/tridentd/txstate/zkstore"
)

// Locks implements engine.Keeper.
func (k *Keeper) Locks() bool { return k.cfg.Lock }

// NewLock implements engine.Keeper. The lock shares its session with the record of the same run.
func (k *Keeper) NewLock(pipeline string, env emitter.Env) (txstate.Lock, error) {
	s, err := k.settings(pipeline)
	if err != nil {
		return nil, err
	}
	conn, release, err := k.acquire(s, env)
	if err != nil {
		return nil, err
	}
	s.store.Logger = env.Logger
	l, err := zkstore.NewLock(s.store, lockConn{conn}, release)
	if err != nil {
		panic("zookeeper: settings that were checked are refused: " + err.Error())
	}
	return l, nil
}

// lockConn tells of a session what a lock asks.
type lockConn struct{ *zkconn.Conn }

func (c lockConn) Session() zkstore.Session {
	s := c.Conn.Session()
	if s.State == zkconn.Expired {
		s.ID = zkstore.NoSession
	}
	return zkstore.Session{ID: s.ID, Timeout: s.Timeout, Up: s.State == zkconn.Connected}
}
