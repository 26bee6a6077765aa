package blob_test

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// s3 is a server that speaks as much of S3 as buckets of savepoints need, paths in style: objects are listed, in pages of three,
// read, written unless they are there, and deleted.
type s3 struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string][]byte // of the one bucket, "backups"
	// refuse answers a request with a status and a code of S3's, if it returns one.
	refuse func(r *http.Request) (status int, code string)
}

func newS3(t *testing.T) *s3 {
	t.Helper()
	s := &s3{objects: map[string][]byte{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "someone")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	t.Setenv("AWS_CA_BUNDLE", "")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	return s
}

// url names a place in the server.
func (s *s3) url(bucket, prefix string) string {
	return "s3://" + bucket + "/" + prefix + "?region=eu-west-1&use_path_style=true&endpoint=" + s.URL
}

type s3Error struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

type s3List struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []s3Object
	CommonPrefixes        []s3Prefix
}

type s3Object struct {
	Key          string
	Size         int
	LastModified string
}

type s3Prefix struct{ Prefix string }

func (s *s3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(status int, code string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			xml.NewEncoder(w).Encode(s3Error{Code: code, Message: code}) //nolint:errcheck // the client sees it
		}
	}
	if s.refuse != nil {
		if status, code := s.refuse(r); status != 0 {
			fail(status, code)
			return
		}
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != "backups" {
		fail(http.StatusNotFound, "NoSuchBucket")
		return
	}
	b, there := s.objects[key]
	switch {
	case r.Method == http.MethodGet && key == "":
		s.list(w, r)
	case r.Method == http.MethodPut && there && r.Header.Get("If-None-Match") == "*":
		fail(http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut:
		body, err := bodyOf(r)
		if err != nil {
			fail(http.StatusBadRequest, "IncompleteBody")
			return
		}
		s.objects[key] = body
		w.Header().Set("ETag", `"x"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		fail(http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", `"x"`)
		http.ServeContent(w, r, "", time.Unix(1_790_000_000, 0), bytes.NewReader(b))
	}
}

// pageSize is small, so that listings have several pages.
const pageSize = 3

func (s *s3) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	prefix, delimiter, after := q.Get("prefix"), q.Get("delimiter"), q.Get("continuation-token")
	var keys []string
	for k := range s.objects { // order: sorted behind
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var page s3List
	seen := map[string]bool{}
	for _, k := range keys {
		rest, ok := strings.CutPrefix(k, prefix)
		if !ok {
			continue
		}
		at, folder := k, false
		if i := strings.Index(rest, delimiter); delimiter != "" && i >= 0 {
			at, folder = prefix+rest[:i+1], true
		}
		if at <= after || seen[at] {
			continue
		}
		if len(seen) == pageSize {
			page.IsTruncated = true
			break
		}
		seen[at] = true
		page.NextContinuationToken = at
		if folder {
			page.CommonPrefixes = append(page.CommonPrefixes, s3Prefix{at})
			continue
		}
		page.Contents = append(page.Contents, s3Object{k, len(s.objects[k]), time.Unix(1_790_000_000, 0).UTC().Format(time.RFC3339)})
	}
	w.Header().Set("Content-Type", "application/xml")
	if err := xml.NewEncoder(w).Encode(page); err != nil {
		panic(err)
	}
}

// bodyOf reads what is uploaded, in signed chunks or as it is.
func bodyOf(r *http.Request) ([]byte, error) {
	if !strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") && !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var all []byte
	in := bufio.NewReader(r.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("chunk %q: %w", line, err)
		}
		if n == 0 {
			return all, nil
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		all = append(all, chunk[:n]...)
	}
}
