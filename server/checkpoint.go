package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"

	"github.com/tridentd/tridentd/batch"
)

// Checkpointer is a Backend that can copy its store.
type Checkpointer interface {
	Backend
	// Checkpoint copies the store to dir, which must not exist, and returns the txid that the copy holds.
	Checkpoint(ctx context.Context, dir string) (batch.Txid, error)
}

// checkpointed is the answer to POST /api/v1/checkpoint.
type checkpointed struct {
	Txid batch.Txid `json:"txid"`
}

func (s *Server) checkpoint(c Checkpointer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		dir := r.URL.Query().Get("dir")
		if !filepath.IsAbs(dir) {
			s.fail(w, batch.NewError(batch.Permanent, batch.CodeConfiguration, "checkpoint", errors.New("dir isn't an absolute path"), "name the directory to be made by its whole path"))
			return
		}
		txid, err := c.Checkpoint(r.Context(), dir)
		if err != nil {
			s.fail(w, err)
			return
		}
		s.log.Info("copied the store", "dir", dir, "txid", uint64(txid))
		s.writeJSON(w, http.StatusOK, checkpointed{txid})
	}
}

// Checkpoint asks the daemon for a copy of its store in dir, an absolute path that must not exist, and returns the txid
// that it holds.
func (c *Client) Checkpoint(ctx context.Context, dir string) (batch.Txid, error) {
	resp, err := c.do(ctx, http.MethodPost, "/api/v1/checkpoint?"+url.Values{"dir": {dir}}.Encode(), jsonType)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var a checkpointed
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return 0, cutOff(err)
	}
	return a.Txid, nil
}
