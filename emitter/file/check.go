package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tridentd/tridentd/batch"
	"github.com/tridentd/tridentd/doctor"
)

var _ doctor.Checker = Source{}

// Check looks whether the files are there and can be read. Of their content nothing is read.
func (s Source) Check(ctx context.Context, env doctor.Env) []doctor.Finding {
	var findings []doctor.Finding
	for _, g := range s.globs {
		if ctx.Err() != nil {
			break
		}
		if err := checkPattern(g); err != nil {
			findings = append(findings, doctor.Of("file "+g, err))
			continue
		}
		findings = append(findings, checkGlob(env.Dir, g))
	}
	return findings
}

func checkGlob(dir, glob string) doctor.Finding {
	f := doctor.Finding{Subject: "file " + glob, Text: "can be read"}
	files, err := expand(dir, []string{glob})
	if err != nil {
		return doctor.Of(f.Subject, configuration(err, "correct the pattern"))
	}
	if len(files) == 0 {
		f.Level, f.Code, f.Text = doctor.Warn, doctor.CodeNoMatch, "no file matches"
		f.Remedy = "correct the pattern; files that come later are read"
		return f
	}
	for _, file := range files {
		err := check(file.path)
		var odd *irregular
		switch {
		case err == nil:
			continue
		case errors.Is(err, fs.ErrNotExist):
			f.Code, f.Text, f.Remedy = batch.CodeFileMissing, "does not exist", "correct the path, or put the file there"
			if near, ok := nearest(file.path); ok {
				f.Text += ": did you mean " + near + "?"
			}
		case errors.Is(err, fs.ErrPermission):
			f.Code, f.Text, f.Remedy = batch.CodeUnauthorized, "may not be read", "give this user the right to read it"
		case errors.As(err, &odd):
			f.Code, f.Text, f.Remedy = batch.CodeConfiguration, "isn't a file that can be read: "+odd.mode.Type().String(), "name a regular file, or a pattern for the files in a directory"
		default:
			f.Code, f.Text, f.Remedy = batch.CodeUnavailable, cause(err), "see to the disk that it lies on"
		}
		f.Level = doctor.Error
		if len(files) > 1 || strings.ContainsAny(glob, meta) {
			f.Text = file.topic + " " + f.Text
		}
		return f
	}
	if !files[0].named {
		f.Text = fmt.Sprintf("%d files, all can be read", len(files))
		if len(files) == 1 {
			f.Text = "1 file, can be read"
		}
	}
	return f
}

func cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
