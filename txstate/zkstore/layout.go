package zkstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/txstate"
)

// layoutVersion is the version of both kinds of nodes. Readers accept later ones, which only add fields.
const layoutVersion = 1

// Names below the base.
const (
	recordName  = "record"
	sourcesName = "sources"
	// garbledInfix joins a node's name and the transaction that wrote what couldn't be read, in the name of the node that keeps that.
	garbledInfix = ".garbled-"
)

// Sizes in bytes.
const (
	// maxPage bounds a page, unless a single position is longer.
	maxPage = 200 << 10
	// maxRequest bounds what is written at once. ZooKeeper takes 1 MiB; paths and ACLs come on top.
	maxRequest = 800 << 10
	// positionSize is what a position takes besides its topic, at most: with the largest numbers, so that which page a
	// partition is on depends on nothing but the partitions there are.
	positionSize = len(`{"topic":,"partition":-2147483648,"next":-9223372036854775808,"txid":18446744073709551615},` + "\n")
	headerSize   = 1024 // of a page without its positions
)

// recordNode is the content of the node record.
type recordNode struct {
	Version  int         `json:"tridentd"`
	Pipeline string      `json:"pipeline"`
	Store    string      `json:"store"`
	Epoch    batch.Epoch `json:"epoch"`
	// Committed is where the store stood.
	Committed committedPart `json:"committed"`
	// Working is the first batch that had begun and not committed.
	Working *workingPart          `json:"working,omitempty"`
	Sources map[string]sourcePart `json:"sources"`
	Written time.Time             `json:"written"`
}

type committedPart struct {
	Txid  batch.Txid `json:"txid"`
	Time  time.Time  `json:"time,omitzero"`
	Chain string     `json:"chain"`
}

type workingPart struct {
	Txid    batch.Txid  `json:"txid"`
	Attempt uint32      `json:"attempt"`
	Epoch   batch.Epoch `json:"epoch"`
}

type sourcePart struct {
	Pages      int `json:"pages"`
	Partitions int `json:"partitions"`
}

func (r *recordNode) encode() []byte {
	r.Version = layoutVersion
	b, err := json.MarshalIndent(r, "", "  ") // the keys of maps are written in order
	if err != nil {
		panic("zkstore: a record of plain fields doesn't encode: " + err.Error())
	}
	return append(b, '\n')
}

// chainText is how a chain is written: JSON's numbers don't reach that far everywhere.
func chainText(chain uint64) string { return fmt.Sprintf("%016x", chain) }

// parseRecord fails for what no tridentd has written.
func parseRecord(b []byte) (*recordNode, error) {
	var r recordNode
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	if r.Version < 1 || r.Pipeline == "" {
		return nil, errors.New("it names no pipeline")
	}
	if _, err := strconv.ParseUint(r.Committed.Chain, 16, 64); err != nil && (r.Committed.Chain != "" || r.Store != "") {
		return nil, fmt.Errorf("committed.chain is %q", r.Committed.Chain)
	}
	return &r, nil
}

// pageNode is the content of one page of a source.
type pageNode struct {
	Version   int            `json:"tridentd"`
	Pipeline  string         `json:"pipeline"`
	Store     string         `json:"store"`
	Source    string         `json:"source"`
	Page      int            `json:"page"`
	Positions []positionPart `json:"positions"`
}

type positionPart struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Next      int64      `json:"next"`
	Txid      batch.Txid `json:"txid"`
}

// encode writes a page with one position a line. It is in an object's usual form otherwise.
func (p *pageNode) encode() []byte {
	b := make([]byte, 0, 256+len(p.Positions)*positionSize)
	b = append(b, `{"tridentd":`...)
	b = strconv.AppendInt(b, layoutVersion, 10)
	for _, f := range []struct{ name, value string }{{"pipeline", p.Pipeline}, {"store", p.Store}, {"source", p.Source}} {
		b = append(append(append(b, `,"`...), f.name...), `":`...)
		b = appendText(b, f.value)
	}
	b = append(b, `,"page":`...)
	b = strconv.AppendInt(b, int64(p.Page), 10)
	b = append(b, `,"positions":[`...)
	for i := range p.Positions {
		at := &p.Positions[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, "\n{\"topic\":"...), at.Topic)
		b = strconv.AppendInt(append(b, `,"partition":`...), int64(at.Partition), 10)
		b = strconv.AppendInt(append(b, `,"next":`...), at.Next, 10)
		b = strconv.AppendUint(append(b, `,"txid":`...), uint64(at.Txid), 10)
		b = append(b, '}')
	}
	return append(b, "\n]}\n"...)
}

func appendText(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("zkstore: a string doesn't encode: " + err.Error())
	}
	return append(b, text...)
}

func parsePage(b []byte) (*pageNode, error) {
	var p pageNode
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, err
	}
	if p.Version < 1 || p.Pipeline == "" || p.Source == "" {
		return nil, errors.New("it names no pipeline and source")
	}
	for i := range p.Positions {
		if at := &p.Positions[i]; at.Topic == "" || at.Partition < 0 || at.Next < 0 {
			return nil, fmt.Errorf("position %d is %+v", i, *at)
		}
	}
	return &p, nil
}

// pageName is the name of a page's node.
func pageName(page int) string { return fmt.Sprintf("%04d", page) }

// garbledName is the name of the node that keeps what couldn't be read of the node of the given name. The same content always
// gets the same name.
func garbledName(name string, mzxid int64) string {
	return name + garbledInfix + strconv.FormatInt(mzxid, 16)
}

func isGarbledName(name string) bool { return strings.Contains(name, garbledInfix) }

// pages cuts a source's positions, which are in order, into pages. A partition's page depends on which
// partitions there are, not on where they stand: a page that hasn't moved stays the same to the byte.
func pages(pipeline, store, source string, positions []txstate.SavedPosition) []pageNode {
	var all []pageNode
	size := maxPage
	for _, p := range positions {
		need := positionSize + quotedSize(p.Topic)
		if size+need > maxPage {
			all = append(all, pageNode{Pipeline: pipeline, Store: store, Source: source, Page: len(all)})
			size = headerSize
		}
		size += need
		last := &all[len(all)-1]
		last.Positions = append(last.Positions, positionPart{Topic: p.Topic, Partition: p.Number, Next: p.Next, Txid: p.Txid})
	}
	return all
}

// quotedSize bounds the size of s as a JSON string.
func quotedSize(s string) int {
	n := 2
	for _, r := range s {
		switch {
		case r < ' ' || r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029' || r == '\ufffd':
			n += 6
		case r == '"' || r == '\\':
			n += 2
		default:
			n += len(string(r))
		}
	}
	return n
}

// content is all that a record consists of, by path below the base.
type content struct {
	record recordNode
	pages  []pageContent // by source and page
}

type pageContent struct {
	source string
	page   int
	data   []byte
}

// contentOf makes the nodes that show a point.
func contentOf(pipeline, store string, at *txstate.Point, working *workingPart, written time.Time) content {
	c := content{record: recordNode{
		Pipeline: pipeline, Store: store, Epoch: at.Epoch,
		Committed: committedPart{Txid: at.Txid, Time: at.Time.UTC(), Chain: chainText(at.Chain)},
		Working:   working, Sources: map[string]sourcePart{}, Written: written.UTC().Truncate(time.Millisecond),
	}}
	if at.Time.IsZero() {
		c.record.Committed.Time = time.Time{}
	}
	if store == "" { // nor is the chain known
		c.record.Committed.Chain = ""
	}
	rest := slices.DeleteFunc(slices.Clone(at.Positions), func(p txstate.SavedPosition) bool {
		return p.Topic == "" // it only marks that the source has been opened
	})
	for len(rest) > 0 {
		source := rest[0].Source
		n := slices.IndexFunc(rest, func(p txstate.SavedPosition) bool { return p.Source != source })
		if n < 0 {
			n = len(rest)
		}
		all := pages(pipeline, store, source, rest[:n])
		for i := range all {
			c.pages = append(c.pages, pageContent{source: source, page: i, data: all[i].encode()})
		}
		c.record.Sources[source] = sourcePart{Pages: len(all), Partitions: n}
		rest = rest[n:]
	}
	return c
}

// sameButWritten tells whether two records differ in nothing but the time at which they were written.
func sameButWritten(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	ra, err := parseRecord(a)
	if err != nil {
		return false
	}
	rb, err := parseRecord(b)
	if err != nil {
		return false
	}
	ra.Written, rb.Written = time.Time{}, time.Time{}
	return bytes.Equal(ra.encode(), rb.encode())
}
