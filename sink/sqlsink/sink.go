package sqlsink

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/jsonscan"
	"github.com/tridentd/tridentd/internal/sqldb"
	"github.com/tridentd/tridentd/sink"
)

// Sink writes to a table. See the package's documentation for what it guarantees.
type Sink struct {
	cfg     Config
	db      *sqldb.DB
	dialect dialect
	scan    *jsonscan.Scanner // for the columns and deleted
	found   []jsonscan.Field  // room for what it finds

	mu       sync.Mutex
	claimed  bool
	progress sink.Progress  // as the database holds it; valid if claimed
	columns  []sqldb.Column // those written; valid if claimed
	stmts    statements     // valid if claimed
	tx       *transaction   // of what is prepared; nil where the dialect holds none
	out      *sink.Output   // what is prepared
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink. It contacts nobody.
func New(cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	db, d, err := cfg.open()
	if err != nil {
		return nil, err
	}
	fields := append(slices.Clone(cfg.Columns), deleted)
	return &Sink{cfg: cfg, db: db, dialect: d, scan: jsonscan.New(fields), found: make([]jsonscan.Field, len(fields))}, nil
}

// transaction is one that outlives the call that began it. No end of it takes longer than the sink's time limit.
type transaction struct {
	*sql.Tx
	limit time.Duration
	stop  context.CancelFunc
}

func (s *Sink) begin(ctx context.Context) (*transaction, error) {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := context.AfterFunc(ctx, stop)
	tx, err := s.db.BeginTx(own, nil)
	if !done() && err == nil {
		err = errors.Join(context.Cause(ctx), tx.Rollback())
	}
	if err != nil {
		stop()
		return nil, err
	}
	return &transaction{Tx: tx, limit: s.cfg.Timeout, stop: stop}, nil
}

// commit's outcome is unknown if it fails.
func (t *transaction) commit() error {
	limit := time.AfterFunc(t.limit, t.stop)
	defer t.stop()
	defer limit.Stop()
	return t.Commit()
}

func (t *transaction) rollback() error {
	limit := time.AfterFunc(t.limit, t.stop)
	defer t.stop()
	defer limit.Stop()
	if err := t.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// in runs f in a transaction, which is committed if f succeeds.
func (s *Sink) in(ctx context.Context, f func(tx *transaction) error) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		tx.rollback() //nolint:errcheck // f's failure is the one to tell of
		return err
	}
	return tx.commit()
}

func (s *Sink) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.cfg.Timeout)
}

// failure says of an error what it means; nil of none.
func (s *Sink) failure(op string, err error) error {
	if err == nil {
		return nil
	}
	return s.db.Failure(op, err)
}

// Progress implements sink.Sink.
func (s *Sink) Progress(ctx context.Context) (sink.Progress, error) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	if err := s.dialect.present(&s.cfg); err != nil {
		return sink.Progress{}, s.failure("reading the progress", err)
	}
	p, err := s.read(ctx, s.db)
	return p, s.failure("reading the progress", err)
}

// read reads the progress; the zero value if there is none.
func (s *Sink) read(ctx context.Context, q sqldb.Queryer) (sink.Progress, error) {
	there, err := s.db.TableExists(ctx, q, s.cfg.progressName())
	if err != nil || !there {
		return sink.Progress{}, err
	}
	var txid, epoch int64
	var chain string
	err = q.QueryRowContext(ctx, "SELECT txid, epoch, chain FROM "+s.cfg.progressName()+" WHERE pipeline = "+s.db.Param(1)+" AND sink = "+s.db.Param(2), s.cfg.Pipeline, s.cfg.Sink).Scan(&txid, &epoch, &chain)
	if errors.Is(err, sql.ErrNoRows) {
		return sink.Progress{}, nil
	}
	if err != nil {
		return sink.Progress{}, err
	}
	digest, err := strconv.ParseUint(chain, 16, 64)
	if err != nil || txid < 0 || epoch < 0 {
		return sink.Progress{}, batch.NewError(batch.Permanent, batch.CodeStoreDamaged, "progress",
			fmt.Errorf("the row of %s in %s says txid %d, epoch %d, chain %q", s.cfg.Sink, progressTable, txid, epoch, chain), "restore the database, or remove the row and start over with --fresh")
	}
	return sink.Progress{Txid: batch.Txid(txid), Epoch: batch.Epoch(epoch), Chain: digest}, nil
}

// Claim implements sink.Sink.
func (s *Sink) Claim(ctx context.Context, epoch batch.Epoch) (sink.Progress, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	ctx, cancel := s.limit(ctx)
	defer cancel()
	if err := s.dialect.present(&s.cfg); err != nil {
		return sink.Progress{}, s.failure("claim", err)
	}
	if err := s.createProgress(ctx); err != nil {
		return sink.Progress{}, err
	}
	columns, err := inspect(ctx, &s.cfg, s.db, s.db)
	if err != nil {
		return sink.Progress{}, err
	}
	held, err := s.read(ctx, s.db)
	if err != nil {
		return sink.Progress{}, s.failure("reading the progress", err)
	}
	if held.Epoch > epoch {
		return sink.Progress{}, s.deposed(held.Epoch, epoch)
	}
	if err := s.dialect.endOthers(ctx, s.db, s.lockName()); err != nil {
		return sink.Progress{}, s.failure("ending the transaction of a former run", err)
	}
	var p sink.Progress
	err = s.in(ctx, func(tx *transaction) (err error) {
		if err := s.dialect.lock(ctx, tx, s.lockName(), s.cfg.Timeout*2/3); err != nil {
			return err
		}
		// A statement of its own: its snapshot has what the lock's former holder has committed.
		if _, err := tx.ExecContext(ctx, "INSERT INTO "+s.cfg.progressName()+" AS t (pipeline, sink, txid, epoch, chain) VALUES ("+s.db.Param(1)+", "+s.db.Param(2)+", 0, "+s.db.Param(3)+", '0000000000000000')"+
			" ON CONFLICT (pipeline, sink) DO UPDATE SET epoch = excluded.epoch WHERE t.epoch <= excluded.epoch", s.cfg.Pipeline, s.cfg.Sink, int64(epoch)); err != nil {
			return err
		}
		if p, err = s.read(ctx, tx); err == nil && p.Epoch != epoch {
			err = s.deposed(p.Epoch, epoch)
		}
		return err
	})
	if err != nil {
		return sink.Progress{}, s.failure("claim", err)
	}
	s.claimed, s.progress, s.columns, s.stmts = true, p, columns, s.dialect.statements(&s.cfg, columns)
	return p, nil
}

func (s *Sink) createProgress(ctx context.Context) error {
	there, err := s.db.TableExists(ctx, s.db, s.cfg.progressName())
	if err != nil {
		return s.failure("looking for the progress", err)
	}
	if there {
		return nil
	}
	create := "CREATE TABLE IF NOT EXISTS " + s.cfg.progressName() + " (pipeline text, sink text, txid bigint NOT NULL, epoch bigint NOT NULL, chain text NOT NULL, PRIMARY KEY (pipeline, sink))"
	if _, err := s.db.ExecContext(ctx, create); err != nil {
		e := s.db.Failure("creating the table of the progress", err)
		switch e.Code {
		case batch.CodeUnauthorized:
			e.Remedy = "let this user create tables, or run, and grant SELECT, INSERT and UPDATE on it: " + create
		case batch.CodeBadRecord: // somebody else makes it at the same moment
			e.Kind, e.Code, e.Remedy = batch.Transient, batch.CodeUnavailable, ""
		}
		return e
	}
	return nil
}

// lockName identifies the sink's transactions among all of the database's.
func (s *Sink) lockName() string {
	return s.cfg.progressName() + "." + s.cfg.Pipeline + "." + s.cfg.Sink
}

func (s *Sink) deposed(held, epoch batch.Epoch) error {
	return sink.Deposed("table "+s.cfg.Table, held, epoch)
}

// drop gives up what is prepared.
func (s *Sink) drop() {
	if s.tx != nil {
		s.tx.rollback() //nolint:errcheck // a claim ends it on the server
	}
	s.claimed, s.tx, s.out = false, nil, nil
}

var errUnclaimed = errors.New("the sink isn't claimed, or has nothing prepared")

// Prepare implements sink.Sink.
func (s *Sink) Prepare(ctx context.Context, out *sink.Output) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimed || s.out != nil {
		return s.failure("prepare", errUnclaimed)
	}
	if err := s.prepare(ctx, out); err != nil {
		s.drop()
		return s.failure("writing the batch", err)
	}
	s.out = out
	return nil
}

func (s *Sink) prepare(ctx context.Context, out *sink.Output) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	s.tx = tx
	if err := s.dialect.lock(ctx, tx, s.lockName(), s.cfg.Timeout*2/3); err != nil {
		return err
	}
	p, err := s.read(ctx, tx)
	if err != nil {
		return err
	}
	if p != s.progress {
		return fmt.Errorf("the sink was claimed by somebody else: its progress is txid %d of epoch %d, and was txid %d of epoch %d", p.Txid, p.Epoch, s.progress.Txid, s.progress.Epoch)
	}
	if err := s.write(ctx, tx, out); err != nil {
		return err
	}
	if s.dialect.holds() {
		return nil
	}
	s.tx = nil
	return tx.rollback()
}

// Commit implements sink.Sink.
func (s *Sink) Commit(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimed || s.out == nil {
		return s.failure("commit", errUnclaimed)
	}
	ctx, cancel := s.limit(ctx)
	defer cancel()
	next := sink.Progress{Txid: s.out.Txid, Epoch: s.out.Epoch, Chain: s.out.Chain}
	err := s.commit(ctx, next)
	if err != nil {
		s.drop() // the outcome is the next claim's to find out
		return s.failure("commit", err)
	}
	s.progress, s.tx, s.out = next, nil, nil
	return nil
}

func (s *Sink) commit(ctx context.Context, next sink.Progress) error {
	if s.tx == nil {
		tx, err := s.begin(ctx)
		if err != nil {
			return err
		}
		s.tx = tx
		if err := s.write(ctx, tx, s.out); err != nil {
			return err
		}
	}
	if err := s.advance(ctx, s.tx, next); err != nil {
		return err
	}
	return s.tx.commit()
}

// advance writes the progress where it is still what this process knows.
func (s *Sink) advance(ctx context.Context, tx *transaction, next sink.Progress) error {
	n := s.db.Param
	res, err := tx.ExecContext(ctx, "UPDATE "+s.cfg.progressName()+" SET txid = "+n(1)+", epoch = "+n(2)+", chain = "+n(3)+
		" WHERE pipeline = "+n(4)+" AND sink = "+n(5)+" AND txid = "+n(6)+" AND epoch = "+n(7)+" AND chain = "+n(8),
		int64(next.Txid), int64(next.Epoch), hex(next.Chain), s.cfg.Pipeline, s.cfg.Sink, int64(s.progress.Txid), int64(s.progress.Epoch), hex(s.progress.Chain))
	if err != nil {
		return err
	}
	rows, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if rows != 1 {
		return errors.New("the sink was claimed by somebody else")
	}
	return nil
}

func hex(chain uint64) string { return fmt.Sprintf("%016x", chain) }

// Abort implements sink.Sink.
func (s *Sink) Abort(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimed || s.out == nil {
		return s.failure("abort", errUnclaimed)
	}
	tx := s.tx
	s.tx, s.out = nil, nil
	if tx == nil {
		return nil
	}
	if err := tx.rollback(); err != nil {
		s.claimed = false
		return s.failure("abort", err)
	}
	return nil
}

// Forget implements sink.Sink.
func (s *Sink) Forget(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimed || s.out != nil {
		return s.failure("forget", errUnclaimed)
	}
	ctx, cancel := s.limit(ctx)
	defer cancel()
	next := sink.Progress{Epoch: s.progress.Epoch}
	if err := s.in(ctx, func(tx *transaction) error { return s.advance(ctx, tx, next) }); err != nil {
		s.drop()
		return s.failure("forget", err)
	}
	s.progress = next
	return nil
}

// Close implements sink.Sink.
func (s *Sink) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	return s.failure("close", s.db.Close())
}
