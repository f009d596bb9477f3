package pgdev

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindTriesItsWaysInOrder(t *testing.T) {
	t.Setenv("PG_MAJOR", "")
	nothing := func(context.Context, account, int) (programs, error) { return programs{}, nil }
	broken := func(context.Context, account, int) (programs, error) { return programs{}, errors.New("broken") }
	found := func(bin string) way {
		return func(context.Context, account, int) (programs, error) { return programs{bin: bin}, nil }
	}
	for name, c := range map[string]struct {
		ways []way
		bin  string
		err  string
	}{
		"the first place that has it": {[]way{nothing, found("/b"), found("/c")}, "/b", ""},
		"an error ends the search":    {[]way{nothing, broken, found("/c")}, "", "broken"},
		"found in no place":           {[]way{nothing, nothing}, "", "apt-get install postgresql"},
	} {
		p, err := finder{ways: c.ways}.find(t.Context(), account{})
		if p.bin != c.bin || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, %q", name, p.bin, err, c.bin, c.err)
		}
	}
}

func TestFindFromEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PG_BIN", dir)
	if _, err := fromEnvironment(t.Context(), account{}, 0); err == nil || !strings.Contains(err.Error(), "PG_BIN is "+dir) {
		t.Errorf("an empty folder: %v, want an error that names it", err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := fromEnvironment(t.Context(), account{}, 0); err != nil || p.bin != dir {
		t.Errorf("got %q, %v; want %q", p.bin, err, dir)
	}
	t.Setenv("PG_BIN", "")
	if p, err := fromEnvironment(t.Context(), account{}, 0); err != nil || p.bin != "" {
		t.Errorf("not set: %q, %v; want nothing", p.bin, err)
	}
}

func TestFindFromPathFollowsLinks(t *testing.T) {
	installed, linked := t.TempDir(), t.TempDir()
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(installed, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(installed, "initdb"), filepath.Join(linked, "initdb")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", linked)
	if p, err := fromPath(t.Context(), account{}, 0); err != nil || p.bin != installed {
		t.Errorf("got %q, %v; want %q", p.bin, err, installed)
	}
}

// installation makes a folder of programs that report the version.
func installation(t *testing.T, version string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	for _, name := range []string{"initdb", "postgres"} {
		script := fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s'\n", name, version)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

// The version in PG_MAJOR is found, or the search fails: another version is
// never used in its place.
func TestFindByMajor(t *testing.T) {
	installed := installation(t, "15.18 (Debian 15.18-0+deb12u1)")
	t.Setenv("PATH", installed)
	t.Setenv("PG_BIN", "")
	for _, test := range []struct {
		major, bin, err string
	}{
		{"", installed, ""},
		{"15", installed, ""},
		{"18", "", "PG_MAJOR asks for Postgres 18: no Postgres programs found"},
		{"13", "", `PG_MAJOR must be a major version of Postgres, 14 or newer, not "13"`},
		{"newest", "", "PG_MAJOR must be"},
	} {
		t.Setenv("PG_MAJOR", test.major)
		p, err := finder{ways: []way{fromEnvironment, fromPath}}.find(t.Context(), account{})
		if p.bin != test.bin || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("PG_MAJOR %q: %q, %v; want %q, %q", test.major, p.bin, err, test.bin, test.err)
		}
	}
	for _, test := range []struct {
		data                   int
		pgMajor, foundBin, err string
	}{
		{15, "", installed, ""},
		{15, "15", installed, ""},
		{14, "", "", "the data was made by Postgres 14, which only that version can read"},
		{14, "15", "", "PG_MAJOR asks for Postgres 15, and the data was made by 14"},
	} {
		t.Setenv("PG_MAJOR", test.pgMajor)
		p, err := finder{ways: []way{fromEnvironment, fromPath}, data: test.data}.find(t.Context(), account{})
		if p.bin != test.foundBin || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("data of %d, PG_MAJOR %q: %q, %v; want %q, %q", test.data, test.pgMajor, p.bin, err, test.foundBin, test.err)
		}
	}
	t.Setenv("PG_MAJOR", "18")
	t.Setenv("PG_BIN", installed)
	if _, err := (finder{}).find(t.Context(), account{}); err == nil || !strings.Contains(err.Error(), "PG_BIN is "+installed+", which does not hold Postgres 18") {
		t.Errorf("PG_BIN of another version: %v", err)
	}
}

func TestMajorOf(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]int{"18.4": 18, "15.18 (Debian 15.18-0+deb12u1)": 15, "19devel": 0, "": 0} {
		if got := majorOf(t.Context(), installation(t, version)); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}

// Each version that the documents name has a package.
func TestReleases(t *testing.T) {
	t.Parallel()
	for major := majorMin; major <= 18; major++ {
		pinned := releases[major]
		if !strings.HasPrefix(pinned.version, strconv.Itoa(major)+".") {
			t.Errorf("%d: version %q", major, pinned.version)
		}
		platforms := []string{"linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"}
		if major == 14 {
			platforms = platforms[:1] // npm has this platform only
		}
		for _, platform := range platforms {
			if sum, err := base64.StdEncoding.DecodeString(pinned.sums[platform]); err != nil || len(sum) != sha512.Size {
				t.Errorf("%d for %s: a sum of %d bytes, %v", major, platform, len(sum), err)
			}
		}
	}
}

func TestNewestFirst(t *testing.T) {
	t.Parallel()
	got := newestFirst([]string{
		"/Applications/Postgres.app/Contents/Versions/latest/bin", "/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/16/bin",
		"/usr/pgsql-17/bin", "/opt/homebrew/opt/postgresql@14/bin",
	})
	want := []string{
		"/usr/pgsql-17/bin", "/usr/lib/postgresql/16/bin", "/opt/homebrew/opt/postgresql@14/bin", "/usr/lib/postgresql/9.6/bin",
		"/Applications/Postgres.app/Contents/Versions/latest/bin",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// pack makes an npm package of the files, in order: name, content, name,
// content, …
func pack(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	archive := tar.NewWriter(zipped)
	for i := 0; i < len(files); i += 2 {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: files[i], Size: int64(len(files[i+1])), Mode: 0o700}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "unpacked")
	err := unpack(pack(t,
		"package/native/lib/libpq.so.5.17", "library",
		"package/native/pg-symlinks.json", `[{"source":"native/lib/libpq.so.5.17","target":"native/lib/libpq.so"},{"source":"native/lib/libpq.so.5.17","target":"native/link"}]`,
	), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"native/lib/libpq.so.5.17", "native/lib/libpq.so", "native/link"} {
		path := filepath.Join(dir, name)
		content, err := os.ReadFile(path)
		if err != nil || string(content) != "library" {
			t.Errorf("%s: %q, %v", name, content, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: mode %v, %v; want it readable and executable for all users", name, info.Mode(), err)
		}
	}
}

func TestUnpackStaysInside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		archive []byte
		err     string
	}{
		"link out of the folder": {pack(t, "package/native/pg-symlinks.json", `[{"source":"native/x","target":"../outside"}]`), "escapes"},
		"file out of the folder": {pack(t, "package/../../outside", "x", "/outside", "x"), ""}, // ignored
		"the same file twice":    {pack(t, "package/a", "x", "package/a", "y"), "exists"},
		"not gzip":               {[]byte("plain text, no gzip"), "gzip"},
	} {
		parent := t.TempDir()
		err := unpack(c.archive, filepath.Join(parent, "unpacked"))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if _, err := os.Lstat(filepath.Join(parent, "outside")); err == nil {
			t.Errorf("%s: it was written outside", name)
		}
	}
}

func TestCheckSum(t *testing.T) {
	t.Parallel()
	const ofEmpty = "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="
	if err := checkSum("empty", nil, ofEmpty); err != nil {
		t.Error(err)
	}
	if err := checkSum("tampered", []byte("x"), ofEmpty); err == nil || !strings.Contains(err.Error(), "tampered has the wrong checksum") {
		t.Errorf("got %v, want an error", err)
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "it wrote nothing",
		"one\ntwo\n":                    "two",
		"LOG: a\nFATAL:  b\nHINT:  c\n": "FATAL: b HINT: c",
	} {
		out := newTail(nil)
		_, _ = out.Write([]byte(strings.Repeat("x", 2*tailMax) + "\n" + text))
		got := out.reason()
		if text == "" {
			got = newTail(nil).reason()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
