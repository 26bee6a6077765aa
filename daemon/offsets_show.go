package daemon

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/internal/plan"
	"github.com/tridentd/tridentd/internal/value"
	"github.com/tridentd/tridentd/state"
	"github.com/tridentd/tridentd/txstate"
)

func (a *app) offsetsShowCommand() *cobra.Command {
	var data, format string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show what has committed beside what the consumer group and ZooKeeper hold",
		Long: "show prints, for each partition, the next offset and the txid that moved it last: ours, which is the truth, the consumer\n" +
			"group's and ZooKeeper's. Where somebody else wrote one of those, it says who.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			ctx, cancel := within(cmd.Context(), timeout)
			defer cancel()
			_, pl, st, err := a.placed(ctx, args, data)
			if err != nil {
				return err
			}
			groups, keeper, err := mirrorsShow(ctx, pl)
			return errors.Join(a.printOffsets(&st, groups, keeper, format), err)
		},
	}
	dataFlag(cmd, &data)
	formatFlag(cmd, &format)
	timeoutFlag(cmd, &timeout)
	return cmd
}

// mirrorsShow asks the sources' groups and ZooKeeper at once. What answered is returned with the errors of what didn't.
func mirrorsShow(ctx context.Context, pl *plan.Plan) (groups, keeper []txstate.Shown, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, len(pl.Sources)+1)
	env := plan.Env{Logger: hclog.NewNullLogger()}
	for i, s := range pl.Sources {
		if s.Mirror == nil {
			continue
		}
		wg.Go(func() {
			all, err := mirrorShows(ctx, func() (txstate.Mirror, error) { return s.Mirror(env) })
			mu.Lock()
			defer mu.Unlock()
			groups, errs[i] = append(groups, all...), err
		})
	}
	if k := pl.Keeper; k != nil && k.Record != nil {
		wg.Go(func() {
			keeper, errs[len(pl.Sources)] = mirrorShows(ctx, func() (txstate.Mirror, error) { return k.Record(env) })
		})
	}
	wg.Wait()
	return groups, keeper, errors.Join(errs...)
}

func mirrorShows(ctx context.Context, open func() (txstate.Mirror, error)) (all []txstate.Shown, err error) {
	m, err := open()
	if err != nil || m == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeMirror(ctx, m)) }()
	s, ok := m.(txstate.Showing)
	if !ok {
		return nil, nil
	}
	err = patiently(ctx, func() (err error) {
		all, err = s.Shown(ctx)
		return err
	})
	return all, err
}

// patiently calls f again while a group's coordinator is being found: a cluster that has just started has none for a moment.
func patiently(ctx context.Context, f func() error) error {
	const pause = 200 * time.Millisecond
	for {
		err := f()
		if batch.CodeOf(err) != batch.CodeGroupCoordinator || err == nil {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

// closeMirror ends a mirror that has been used for a question only, even if ctx is done.
func closeMirror(ctx context.Context, m txstate.Mirror) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return m.Close(closing)
}

var offsetsColumns = []state.Column{
	{Name: "source", Type: "string"},
	{Name: "topic", Type: "string"},
	{Name: "partition", Type: "int"},
	{Name: "next", Type: "int"},
	{Name: "txid", Type: "int"},
	{Name: "group_next", Type: "int"},
	{Name: "group_txid", Type: "int"},
	{Name: "group_by", Type: "string"},
	{Name: "zookeeper_next", Type: "int"},
	{Name: "zookeeper_txid", Type: "int"},
	{Name: "zookeeper_by", Type: "string"},
}

func (a *app) printOffsets(st *standing, groups, keeper []txstate.Shown, format string) error {
	p := newPrinter(format, a.out)
	if err := p.Begin(st.txid, offsetsColumns); err != nil {
		return err
	}
	ours := map[batch.Partition]txstate.SavedPosition{}
	all := map[batch.Partition]bool{}
	for _, pos := range st.positions {
		if pos.Topic != "" {
			ours[pos.Partition], all[pos.Partition] = pos, true
		}
	}
	index := func(shown []txstate.Shown) map[batch.Partition]*txstate.Shown {
		by := map[batch.Partition]*txstate.Shown{}
		for i := range shown {
			by[shown[i].Partition], all[shown[i].Partition] = &shown[i], true
		}
		return by
	}
	group, zk := index(groups), index(keeper)
	for _, part := range slices.SortedFunc(maps.Keys(all), batch.Partition.Compare) {
		next, txid := value.NullValue(), value.NullValue()
		if pos, ok := ours[part]; ok {
			next, txid = value.IntOf(pos.Next), value.IntOf(int64(pos.Txid))
		}
		row := []value.Value{value.StringOf(part.Source), value.StringOf(part.Topic), value.IntOf(int64(part.Number)), next, txid}
		for _, s := range []*txstate.Shown{group[part], zk[part]} {
			row = append(row, shownValues(s)...)
		}
		if err := p.Row(row); err != nil {
			return err
		}
	}
	return p.end()
}

// shownValues are the columns of what one mirror holds.
func shownValues(s *txstate.Shown) []value.Value {
	if s == nil {
		return []value.Value{value.NullValue(), value.NullValue(), value.NullValue()}
	}
	txid, by := value.IntOf(int64(s.Txid)), value.NullValue()
	if s.By != "" {
		txid, by = value.NullValue(), value.StringOf(s.By)
	}
	return []value.Value{value.IntOf(s.Next), txid, by}
}
