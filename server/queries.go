package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
)

// Answering is a Backend whose pipeline may declare queries.
type Answering interface {
	Backend
	// Queries lists the queries, by name.
	Queries() []QueryInfo
	// Call answers a query over what has committed: it hands the rows of the answer to w. An unknown query is an error that is
	// ErrNotFound, arguments that can't be read are one with batch.CodeConfiguration. An error of w is returned as it is.
	Call(ctx context.Context, c QueryCall, w RowWriter) error
}

// QueryInfo describes a query.
type QueryInfo struct {
	Name    string         `json:"name"`
	Params  []state.Column `json:"params"`  // the arguments
	Columns []state.Column `json:"columns"` // of the answer
	States  []string       `json:"states"`  // that it reads
}

// QueryCall is one call of a query.
type QueryCall struct {
	Name string
	// Args is a JSON object with the arguments as fields; nil if they are Texts.
	Args  []byte
	Texts url.Values
	// AtLeast is the txid that must have committed before the query is answered.
	AtLeast batch.Txid
}

// Headers of a call. The parameters _at_least and _timeout of the address say the same.
const (
	AtLeastHeader = "Tridentd-At-Least"
	TimeoutHeader = "Tridentd-Timeout"
)

const (
	atLeastParam = "_at_least"
	timeoutParam = "_timeout"
)

// Bounds on a call.
const (
	DefaultCallTimeout = 10 * time.Second
	maxCallTimeout     = 10 * time.Minute
	maxArgs            = 16 << 20
)

func (s *Server) queries(b Answering) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		all := b.Queries()
		if all == nil {
			all = []QueryInfo{}
		}
		s.writeJSON(w, http.StatusOK, all)
	}
}

func (s *Server) call(b Answering) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, timeout, err := callOf(w, r)
		if err != nil {
			s.fail(w, err)
			return
		}
		if reads := s.untilClosed(); reads.Err() != nil {
			s.fail(w, context.Cause(reads))
			return
		}
		out, ctx, done := s.reading(w, r)
		defer done()
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, errLate(c.Name, timeout))
		defer cancel()
		_ = out.ctl.SetWriteDeadline(time.Now().Add(timeout + writeTimeout)) // as in progressWriter
		var rows rowEncoder = &jsonRows{stream: out}
		if r.Header.Get("Accept") == rowsType {
			rows = &binaryRows{stream: out}
		}
		err = b.Call(ctx, c, rows)
		if errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(ctx)
		}
		switch {
		case err == nil && !out.begun:
			panic("server: Answering.Call returned without Begin")
		case err == nil:
			rows.end()
		case !out.sent:
			s.fail(w, err)
		default:
			s.log.Debug("query failed under way", "query", c.Name, "error", err)
			rows.fail(err)
		}
	}
}

func errLate(name string, limit time.Duration) error {
	return batch.NewError(batch.Transient, batch.CodeTimeout, "query", fmt.Errorf("query %s: no answer within %s", name, limit),
		"give it more time, or ask again")
}

// callOf reads a call from its request.
func callOf(w http.ResponseWriter, r *http.Request) (c QueryCall, timeout time.Duration, err error) {
	c = QueryCall{Name: r.PathValue("name"), Texts: r.URL.Query()}
	setting := func(header, param string) string {
		text := r.Header.Get(header)
		if p := c.Texts.Get(param); p != "" {
			text = p
		}
		delete(c.Texts, param)
		return text
	}
	timeout = DefaultCallTimeout
	if text := setting(AtLeastHeader, atLeastParam); text != "" {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return c, 0, wrongCall("%q is no txid", text)
		}
		c.AtLeast = batch.Txid(n)
	}
	if text := setting(TimeoutHeader, timeoutParam); text != "" {
		if timeout, err = time.ParseDuration(text); err != nil || timeout <= 0 || timeout > maxCallTimeout {
			return c, 0, wrongCall("%q is no time limit such as 5s, at most %s", text, maxCallTimeout)
		}
	}
	if r.Method != http.MethodPost {
		return c, timeout, nil
	}
	if len(c.Texts) > 0 {
		return c, 0, wrongCall("arguments stand in the body of a POST, not in its address")
	}
	if c.Args, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxArgs)); err != nil {
		return c, 0, wrongCall("the body can't be read: %v", err)
	}
	if c.Args = bytes.TrimSpace(c.Args); len(c.Args) == 0 {
		c.Args = []byte("{}")
	}
	if !json.Valid(c.Args) {
		return c, 0, wrongCall("the body is no JSON")
	}
	return c, timeout, nil
}

func wrongCall(format string, args ...any) error {
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "query", fmt.Errorf(format, args...), "")
}

// Queries lists the queries that the daemon's pipeline answers.
func (c *Client) Queries(ctx context.Context) ([]QueryInfo, error) {
	var all []QueryInfo
	err := c.getJSON(ctx, "/api/v1/queries", &all)
	return all, err
}

// Call hands the rows of a query's answer to w: see Answering.Call. Args must be given.
func (c *Client) Call(ctx context.Context, call QueryCall, timeout time.Duration, w RowWriter) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/api/v1/queries/"+url.PathEscape(call.Name), bytes.NewReader(call.Args))
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	req.Header.Set("Accept", rowsType)
	req.Header.Set("Content-Type", jsonType)
	req.Header.Set(AtLeastHeader, strconv.FormatUint(uint64(call.AtLeast), 10))
	req.Header.Set(TimeoutHeader, timeout.String())
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readRows(resp.Body, w)
}
