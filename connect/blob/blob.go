// Package blob keeps savepoints in buckets. Importing it makes savepoint.Open, and with that the command line and the setting
// savepoints, understand the URLs of
//
//   - s3://bucket/prefix?region=eu-west-1, also &endpoint=https://host&use_path_style=true for other servers that speak S3;
//   - azblob://container/prefix, the account from AZURE_STORAGE_ACCOUNT;
//   - file:///directory, which is for trying things out: a folder's path makes savepoints that outlast a loss of power.
//
// Package connect/blob/gcs adds gs://bucket/prefix. Credentials come from where each cloud's own tools look for them (environment,
// files below the home directory, the machine's role). What a URL may hold besides is gocloud.dev's: a driver's parameters stay as
// they are, and what lies behind the bucket's name is the prefix of all keys.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/fileblob"  // file://
	_ "gocloud.dev/blob/s3blob"    // s3://
	"gocloud.dev/gcerrors"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/savepoint"
)

func init() {
	savepoint.Register("s3", Open)
	savepoint.Register("azblob", Open)
	savepoint.Register("file", openFiles)
}

// Open opens the bucket that a URL names by gocloud.dev's driver for it, and asks it whether it is there.
func Open(ctx context.Context, u *url.URL) (savepoint.Bucket, string, error) {
	at := *u
	prefix := strings.Trim(at.Path, "/")
	at.Path, at.RawPath = "", ""
	b, err := open(ctx, &at, u.Scheme+"://"+u.Host)
	return b, prefix, err
}

// openFiles opens a directory, made if it isn't there. Its files hold nothing but the objects, so that it can be used as a folder.
func openFiles(ctx context.Context, u *url.URL) (savepoint.Bucket, string, error) {
	at := *u
	q := at.Query()
	for name, value := range map[string]string{"metadata": "skip", "create_dir": "true", "no_tmp_dir": "true"} { // order: a set
		if !q.Has(name) {
			q.Set(name, value)
		}
	}
	at.RawQuery = q.Encode()
	b, err := open(ctx, &at, "file://"+strings.TrimSuffix(u.Path, "/"))
	return b, "", err
}

func open(ctx context.Context, u *url.URL, name string) (savepoint.Bucket, error) {
	b, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, batch.NewError(batch.Permanent, batch.CodeConfiguration, "savepoint open", fmt.Errorf("%s: %w", name, err), "mend the URL of the bucket")
	}
	bucket := &Bucket{b, name}
	switch there, err := b.IsAccessible(ctx); {
	case err != nil:
		return nil, errors.Join(bucket.failed("open", "", err), b.Close())
	case !there:
		return nil, errors.Join(bucket.gone(nil), b.Close())
	}
	return bucket, nil
}

// Of is a bucket of gocloud.dev's as savepoints need it. Name stands for it in messages.
func Of(b *blob.Bucket, name string) *Bucket { return &Bucket{b, name} }

// Bucket is one of gocloud.dev's.
type Bucket struct {
	b    *blob.Bucket
	name string
}

var _ savepoint.Bucket = (*Bucket)(nil)

func (b *Bucket) String() string { return b.name }

// Close implements savepoint.Bucket.
func (b *Bucket) Close() error { return b.b.Close() }

// Objects implements savepoint.Bucket.
func (b *Bucket) Objects(ctx context.Context, prefix string) ([]savepoint.Object, error) {
	var all []savepoint.Object
	err := b.list(ctx, prefix, "", func(o *blob.ListObject) {
		all = append(all, savepoint.Object{Key: o.Key, Size: o.Size, Written: o.ModTime})
	})
	return all, err
}

// Folders implements savepoint.Bucket.
func (b *Bucket) Folders(ctx context.Context, prefix string) ([]string, error) {
	var all []string
	err := b.list(ctx, prefix, "/", func(o *blob.ListObject) {
		if o.IsDir {
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(o.Key, prefix), "/"))
		}
	})
	slices.Sort(all)
	return all, err
}

func (b *Bucket) list(ctx context.Context, prefix, delimiter string, f func(*blob.ListObject)) error {
	it := b.b.List(&blob.ListOptions{Prefix: prefix, Delimiter: delimiter})
	for {
		o, err := it.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && gcerrors.Code(err) == gcerrors.NotFound:
			// One of files says the same of a file that goes while it looks.
			if there, aerr := b.b.IsAccessible(ctx); aerr == nil && there {
				return batch.NewError(batch.Transient, batch.CodeUnavailable, "savepoint", fmt.Errorf("list %s: %w", strings.TrimSuffix(b.name+"/"+prefix, "/"), err), "")
			}
			return b.gone(err)
		case err != nil:
			return b.failed("list", prefix, err)
		}
		f(o)
	}
}

// Open implements savepoint.Bucket.
func (b *Bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := b.b.NewReader(ctx, key, nil)
	if err != nil {
		return nil, b.failed("read", key, err)
	}
	return &reader{r, b, key}, nil
}

// reader names what goes wrong while an object is read.
type reader struct {
	*blob.Reader
	bucket *Bucket
	key    string
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.bucket.failed("read", r.key, err)
	}
	return n, err
}

// parts bounds how many parts of one object are sent at once, and so the memory of an upload.
const parts = 2

// Create implements savepoint.Bucket.
func (b *Bucket) Create(ctx context.Context, key string, r io.Reader) error {
	writing, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.b.NewWriter(writing, key, &blob.WriterOptions{IfNotExist: true, ContentType: "application/octet-stream", MaxConcurrency: parts})
	if err != nil {
		return b.failed("write", key, err)
	}
	src := &source{r: r}
	_, err = io.Copy(w, src)
	if err != nil {
		cancel() // closing it then writes nothing
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	switch {
	case src.err != nil:
		return src.err
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return b.failed("write", key, err)
	}
	return nil
}

// source keeps the failure of what is written, which is none of the bucket's.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// Delete implements savepoint.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	if err := b.b.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return b.failed("delete", key, err)
	}
	return nil
}

// gone is the error for a bucket that isn't there.
func (b *Bucket) gone(err error) error {
	what := fmt.Errorf("there is no bucket %s", b.name)
	if err != nil {
		what = fmt.Errorf("%w: %w", what, err)
	}
	return batch.NewError(batch.Permanent, batch.CodeConfiguration, "savepoint", what, "make the bucket, or mend its name, region and endpoint in the URL")
}

// failed says what an error of a driver means.
func (b *Bucket) failed(op, key string, err error) error {
	what := fmt.Errorf("%s %s: %w", op, strings.TrimSuffix(b.name+"/"+key, "/"), err)
	fail := func(kind batch.Kind, code batch.Code, remedy string) error {
		return batch.NewError(kind, code, "savepoint", what, remedy)
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		return fmt.Errorf("%w (%w)", fs.ErrNotExist, what)
	case gcerrors.FailedPrecondition, gcerrors.AlreadyExists:
		return fmt.Errorf("%w (%w)", fs.ErrExist, what)
	case gcerrors.PermissionDenied:
		return fail(batch.Permanent, batch.CodeUnauthorized, remedyRights)
	case gcerrors.InvalidArgument, gcerrors.Unimplemented:
		return fail(batch.Permanent, batch.CodeConfiguration, "mend the URL of the bucket")
	case gcerrors.Canceled:
		return what
	default:
	}
	switch kindOf(err) {
	case credentials:
		return fail(batch.Permanent, batch.CodeUnauthorized, remedyRights)
	case settings:
		return fail(batch.Permanent, batch.CodeConfiguration, "mend the bucket's name, region and endpoint in its URL")
	default:
		return fail(batch.Transient, batch.CodeUnavailable, "")
	}
}

const remedyRights = "give the process credentials that may list, read, write and delete in the bucket"

// cause is what an error means that gocloud.dev doesn't tell apart.
type cause int

const (
	unknown cause = iota
	credentials
	settings
)

// kindOf looks at what S3's client tells: its own codes, or the status of the answer. Interfaces stand for its types, which
// belong to packages that this one has no other use for.
func kindOf(err error) cause {
	var coded interface{ ErrorCode() string }
	if errors.As(err, &coded) {
		switch coded.ErrorCode() {
		case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AccountProblem", "AllAccessDisabled":
			return credentials
		case "PermanentRedirect", "AuthorizationHeaderMalformed", "InvalidBucketName", "IllegalLocationConstraintException":
			return settings
		}
	}
	var answered interface{ HTTPStatusCode() int }
	if errors.As(err, &answered) {
		switch code := answered.HTTPStatusCode(); {
		case code == 401 || code == 403:
			return credentials
		case code >= 300 && code < 500 && code != 408 && code != 409 && code != 429:
			return settings
		}
	}
	if strings.Contains(err.Error(), "failed to refresh cached credentials") {
		return credentials
	}
	return unknown
}
