package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCheckVersion(t *testing.T) {
	for version, good := range map[string]bool{
		"1.2.3": true, "0.1.0-rc.1": true, "v1.2.3": false, "1.2": false, "": false, "1.2.3 ": false, "../1.2.3": false,
	} {
		if err := checkVersion(version); (err == nil) != good {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// An archive depends on the files' contents, and not on when or by whom they were
// written.
func TestArchive(t *testing.T) {
	folder := t.TempDir()
	source := filepath.Join(folder, "api")
	changed := time.Unix(1_764_000_000, 0).UTC()
	var archives [2][]byte
	for i, mode := range []os.FileMode{0o600, 0o755} {
		if err := errors.Join(os.WriteFile(source, []byte("program"), mode), os.Chmod(source, mode)); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(folder, "archive")
		if err := writeArchive(to, "holdfast", changed, []packed{{source, "api", 0o755}}); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(to); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(source, changed, changed); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same content differ")
	}
	compressed, err := gzip.NewReader(bytes.NewReader(archives[0]))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(compressed)
	header, err := archive.Next()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(archive)
	if err != nil || string(content) != "program" || header.Name != "holdfast/api" || header.Mode != 0o755 || !header.ModTime.Equal(changed) {
		t.Errorf("%q, %+v, %v", content, header, err)
	}
}

func TestSums(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"b", "a"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n" +
		"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d  b\n"
	sums, err := writeSums(folder)
	if err != nil || string(sums) != want {
		t.Errorf("%s, %v", sums, err)
	}
	if written, err := os.ReadFile(filepath.Join(folder, "SHA256SUMS")); err != nil || string(written) != want {
		t.Errorf("wrote %s, %v", written, err)
	}
}
