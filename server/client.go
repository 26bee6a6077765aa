package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/state"
)

// ErrNotRunning says that no daemon works in a data directory.
var ErrNotRunning = errors.New("no running pipeline")

// Client talks to the daemon of a data directory. It may be used by many goroutines at once.
type Client struct {
	path string
	http *http.Client
}

// Dial finds the daemon that works in dir, the data directory of one pipeline. The error wraps ErrNotRunning if there
// is none, a socket left behind by a crash included.
func Dial(dir string) (*Client, error) {
	path, err := socketPath(dir)
	if err == nil {
		var conn net.Conn
		if conn, err = dialSocket(context.Background(), path); err == nil {
			conn.Close() //nolint:errcheck // it was a question only
			return newClient(path), nil
		}
	}
	if isGone(err) {
		return nil, fmt.Errorf("%w in %s: %w", ErrNotRunning, dir, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, batch.NewError(batch.Permanent, batch.CodeUnauthorized, "open socket", err,
			"run the command as the user that the pipeline runs as")
	}
	return nil, fmt.Errorf("server: %w", err)
}

func newClient(path string) *Client {
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialSocket(ctx, path)
		},
		ResponseHeaderTimeout: writeTimeout,
		MaxIdleConns:          1,
		IdleConnTimeout:       idleTimeout,
	}}}
}

// Close releases connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the pipeline as it stands.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var st Status
	err := c.getJSON(ctx, "/api/v1/status", &st)
	return st, err
}

// States returns the schemas of the states, by name.
func (c *Client) States(ctx context.Context) ([]state.Schema, error) {
	var out []state.Schema
	err := c.getJSON(ctx, "/api/v1/states", &out)
	return out, err
}

// Query hands the rows of a state to w: see Backend.Query.
func (c *Client) Query(ctx context.Context, name string, keys []string, w RowWriter) error {
	u := "/api/v1/states/" + url.PathEscape(name)
	if len(keys) > 0 {
		u += "?" + url.Values{"key": keys}.Encode()
	}
	resp, err := c.do(ctx, http.MethodGet, u, rowsType)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readRows(resp.Body, w)
}

// Ledger hands over committed entries with from <= txid <= to, in order; to = 0 means to the last.
func (c *Client) Ledger(ctx context.Context, from, to batch.Txid, emit func(LedgerEntry) error) error {
	q := url.Values{"from": {strconv.FormatUint(uint64(from), 10)}, "to": {strconv.FormatUint(uint64(to), 10)}}
	resp, err := c.do(ctx, http.MethodGet, "/api/v1/ledger?"+q.Encode(), jsonType)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	if _, err := dec.Token(); err != nil { // [
		return cutOff(err)
	}
	for dec.More() {
		var e LedgerEntry
		if err := dec.Decode(&e); err != nil {
			return cutOff(err)
		}
		if err := emit(e); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // ]
		return cutOff(err)
	}
	return nil
}

// Stop asks the daemon for an orderly end and returns at once. Wait tells when it has ended.
func (c *Client) Stop(ctx context.Context) error {
	resp, err := c.do(ctx, http.MethodPost, "/api/v1/stop", "")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Wait returns when the daemon doesn't answer any more, or with ctx's error.
func (c *Client) Wait(ctx context.Context) error {
	const every = 50 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		conn, err := dialSocket(ctx, c.path)
		switch {
		case err == nil:
			conn.Close() //nolint:errcheck // it was a question only
		case isGone(err):
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (c *Client) getJSON(ctx context.Context, path string, out any) error {
	resp, err := c.do(ctx, http.MethodGet, path, jsonType)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return cutOff(err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	return c.send(req)
}

func (c *Client) send(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	switch {
	case err != nil && isGone(err):
		return nil, fmt.Errorf("%w any more: %w", ErrNotRunning, err)
	case err != nil:
		return nil, fmt.Errorf("server: %w", err)
	case resp.StatusCode < 300:
		return resp, nil
	}
	defer resp.Body.Close()
	const most = 1 << 20
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	var f failure
	if err != nil || json.Unmarshal(body, &f) != nil || f.Error == nil {
		return nil, fmt.Errorf("server: %s %s: %s", req.Method, req.URL.RequestURI(), resp.Status)
	}
	if resp.StatusCode == http.StatusNotFound {
		return nil, NotFound(f.Error.Err())
	}
	return nil, f.Error.Err()
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("server: the answer was cut off: %w", io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("server: answer: %w", err)
}
