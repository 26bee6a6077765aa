package savepoint

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// An archive is a tar in zstd: savepoint.json, then the files of store/ in its order.

// maxInfo bounds savepoint.json in an archive.
const maxInfo = 64 << 20

// Export verifies a savepoint and writes it to w as one archive.
func (p Place) Export(ctx context.Context, name string, w io.Writer) (Info, error) {
	info, err := p.Load(ctx, name)
	if err != nil {
		return info, err
	}
	return info, p.whole(ctx, info, func(dir string) error {
		inside := info
		inside.Store = ""
		return writeArchive(ctx, inside, dir, w)
	})
}

func writeArchive(ctx context.Context, info Info, dir string, w io.Writer) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	b, err := encode(info)
	if err != nil {
		return err
	}
	add := func(name string, size int64, r io.Reader) error {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size, ModTime: info.Created, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(t, r)
		return err
	}
	if err := add(infoName, int64(len(b)), bytes.NewReader(b)); err != nil {
		return err
	}
	for _, f := range info.Files {
		err := func() error {
			in, err := os.Open(filepath.Join(dir, filepath.FromSlash(f.Path)))
			if err != nil {
				return err
			}
			defer in.Close() //nolint:errcheck // it was only read
			return add(storeName+"/"+f.Path, f.Size, &reader{ctx, in})
		}()
		if err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// Import makes a savepoint of an archive, under a name of its own or, if that is empty, the one that it had. Every byte is compared
// with its checksum before the savepoint takes its name.
func (p Place) Import(ctx context.Context, r io.Reader, archive, name string) (_ Info, err error) {
	if name != "" {
		if err := CheckName(name); err != nil {
			return Info{}, err
		}
	}
	bad := func(format string, args ...any) error {
		err := fmt.Errorf(format, args...)
		if _, ok := errors.AsType[*fs.PathError](err); ok || ctx.Err() != nil {
			return err // a disk's, or somebody's who wants it to end: the archive may be whole
		}
		return damagedFile(archive, err)
	}
	z, err := zstd.NewReader(&reader{ctx, r}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxInfo))
	if err != nil {
		return Info{}, err
	}
	defer z.Close()
	t := tar.NewReader(z)
	h, err := t.Next()
	if err != nil {
		return Info{}, bad("it is no archive of a savepoint, or is cut: %w", err)
	}
	if h.Name != infoName || h.Size > maxInfo {
		return Info{}, bad("it begins with %s, not with %s", h.Name, infoName)
	}
	b, err := io.ReadAll(t)
	if err != nil {
		return Info{}, bad("%w", err)
	}
	info, err := decode(b)
	if err != nil {
		return Info{}, bad("%s: %w", infoName, err)
	}
	if err := p.ours(info, archive); err != nil {
		return info, err
	}
	if name != "" {
		info.Name = name
	}
	if err := p.free(ctx, info.Name); err != nil {
		return info, err
	}
	info.Store = ""
	tmp, remove, err := p.storage.scratch(info.Name)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	dir := filepath.Join(tmp, storeName)
	for _, f := range info.Files {
		h, err := t.Next()
		if err != nil {
			return info, bad("file %s: %w", f.Path, err)
		}
		if h.Name != storeName+"/"+f.Path || h.Size != f.Size {
			return info, bad("%s of %d bytes stands where %s of %d should", h.Name, h.Size, f.Path, f.Size)
		}
		if err := extract(t, filepath.Join(dir, filepath.FromSlash(f.Path)), f); err != nil {
			return info, bad("file %s: %w", f.Path, err)
		}
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return info, bad("there is more behind the last file (%w)", err)
	}
	switch n, err := io.Copy(io.Discard, z); {
	case err != nil:
		return info, bad("there is more behind its end: %w", err)
	case n > 0:
		return info, bad("there are %d bytes more behind its end", n)
	}
	if err := p.same(ctx, info, dir, archive); err != nil {
		return info, err
	}
	return info, p.storage.put(ctx, info, dir)
}

func extract(r io.Reader, path string, f File) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	h := sha256.New()
	err := writeFrom(path, func(w io.Writer) error {
		_, err := io.Copy(io.MultiWriter(h, w), r)
		return err
	})
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("its sum is %s, should be %s", got, f.SHA256)
	}
	return nil
}
