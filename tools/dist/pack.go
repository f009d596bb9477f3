package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// packed is a file of an archive.
type packed struct {
	from string // where it is read
	name string // in the archive
	mode int64
}

// writeArchive writes a compressed tar file whose bytes follow from the contents
// of the files, their names and modes, and the time. All are in one folder.
func writeArchive(to, folder string, changed time.Time, files []packed) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		content, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: path.Join(folder, f.name), Mode: f.mode, Size: int64(len(content)), ModTime: changed, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

// writeSums writes SHA256SUMS for the files of a folder, in the form that
// sha256sum -c reads, and returns it.
func writeSums(folder string) ([]byte, error) {
	entries, err := os.ReadDir(folder) // sorted by name
	if err != nil {
		return nil, err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		sum, err := sumOf(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, e.Name())
	}
	return sums.Bytes(), os.WriteFile(filepath.Join(folder, "SHA256SUMS"), sums.Bytes(), 0o644)
}

func sumOf(name string) (sum []byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
