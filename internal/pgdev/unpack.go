package pgdev

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const unpackedMax = 500 << 20 // bytes; the packages have 60 MB

// unpack writes the regular files of an npm package to dir, without the leading
// "package/". Then it makes the symbolic links. npm packages cannot contain
// links; this one lists them in a file.
func unpack(archive []byte, dir string) error {
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	files := tar.NewReader(io.LimitReader(zipped, unpackedMax))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return link(root)
		}
		if err != nil {
			return err
		}
		name, inside := strings.CutPrefix(path.Clean(header.Name), "package/")
		if header.Typeflag != tar.TypeReg || !inside {
			continue
		}
		if err := write(root, name, fs.FileMode(header.Mode).Perm(), files); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
}

// write makes one file, readable by every user and writable by this one. root
// rejects a name that leads outside the folder.
func write(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	if err := makeFolders(root, path.Dir(name)); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(forAll(mode)), f.Close()) // whatever the umask
}

// forAll lets every user read what the owner may read, and run what the owner
// may run.
func forAll(mode fs.FileMode) fs.FileMode {
	if mode&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

// makeFolders is MkdirAll without the umask, because the server's user must be
// able to enter the folders.
func makeFolders(root *os.Root, name string) error {
	if _, err := root.Stat(name); err == nil {
		return nil
	}
	if err := makeFolders(root, path.Dir(name)); err != nil {
		return err
	}
	return errors.Join(root.Mkdir(name, 0o755), root.Chmod(name, 0o755))
}

const linksFile = "native/pg-symlinks.json"

// link makes the links listed in the package, from target to source, both
// relative to its root.
func link(root *os.Root) error {
	listed, err := root.ReadFile(linksFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(listed, &links); err != nil {
		return fmt.Errorf("read %s: %w", linksFile, err)
	}
	for _, l := range links {
		if !filepath.IsLocal(l.Source) || !filepath.IsLocal(l.Target) {
			return fmt.Errorf("link %s to %s: it escapes the package", l.Target, l.Source)
		}
		to, err := filepath.Rel(path.Dir(l.Target), l.Source)
		if err != nil {
			return fmt.Errorf("link %s to %s: %w", l.Target, l.Source, err)
		}
		if err := root.Symlink(to, l.Target); err != nil {
			return err
		}
	}
	return nil
}
