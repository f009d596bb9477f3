package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// testVersion is the version with which the tests build the programs.
const testVersion = "1.2.3-check"

// programs returns the folder with the four programs. The first call builds
// them with the command line of the Dockerfile.
var programs = sync.OnceValues(func() (string, error) {
	root := os.DirFS(repository)
	code, err := readCode(root)
	if err != nil {
		return "", err
	}
	image, err := checkDockerfile(root, code, &report{})
	if err != nil {
		return "", err
	}
	folder, err := temporary("programs")
	if err != nil {
		return "", err
	}
	const out = "-o /out/ "
	if !strings.Contains(image.build, out) {
		return "", fmt.Errorf("the line of the Dockerfile that builds the programs has no %q: %s", out, image.build)
	}
	build := exec.Command("sh", "-c", strings.Replace(image.build, out, "-o '"+folder+"/' ", 1))
	build.Dir = repository
	build.Env = append(os.Environ(), "VERSION="+testVersion)
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", image.build, err, said)
	}
	return folder, nil
})

// postgres returns the URL of a server for the tests: the one that the
// environment names, as for the tests of the programs, or a private one, which
// the first call starts.
var postgres = sync.OnceValues(func() (string, error) {
	for _, name := range []string{urlName, "DATABASE_URL"} {
		if url := os.Getenv(name); url != "" {
			return url, nil
		}
	}
	folder, err := temporary("withpg")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", folder, "./internal/pgdev/cmd/withpg")
	build.Dir = repository
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build withpg: %w\n%s", err, said)
	}
	// The server runs until the standard input of cat ends, at the latest when
	// this process ends.
	server := exec.Command(filepath.Join(folder, "withpg"), "--", "sh", "-c", `echo "$`+urlName+`" && exec cat`)
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	if err != nil {
		return "", err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := server.Start(); err != nil {
		return "", fmt.Errorf("start a private Postgres: %w", err)
	}
	atEnd = append(atEnd, func() error { return errors.Join(stdin.Close(), server.Wait()) })
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read the URL of the private Postgres: %w", err)
	}
	return strings.TrimSpace(url), nil
})

const urlName = "HOLDFAST_TEST_DATABASE_URL"

// atEnd are the functions that run after the tests. Only the two functions
// above add to it, before the first test that uses them continues.
var atEnd []func() error

// temporary makes a folder that is removed when all tests have ended.
func temporary(name string) (string, error) {
	folder, err := os.MkdirTemp("", "holdfast-"+name) // several tests use it
	if err == nil {
		atEnd = append(atEnd, func() error { return os.RemoveAll(folder) })
	}
	return folder, err
}

func TestMain(m *testing.M) {
	debug.SetGCPercent(800) // a hundred copies are checked, and each makes much garbage
	code := m.Run()
	for _, end := range atEnd {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// note prints a figure, or what a test left out. Unlike t.Log it prints also
// when the tests pass, unless several packages are tested.
func note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// forward is like Cloud SQL's proxy: it connects each connection to a Unix
// socket with the server. It calls opened for each session that the server has
// begun, before the client receives the server's answer. It returns once the
// listener is closed.
func forward(listener net.Listener, network, server string, opened func()) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go forwardOne(client, network, server, opened)
	}
}

func forwardOne(client net.Conn, network, address string, opened func()) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	if err != nil {
		return // the client receives the error
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, client) // until the client closes
		if half, ok := server.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	answers := bufio.NewReader(server)
	if err := forwardStart(client, answers, opened); err == nil {
		_, _ = io.Copy(client, answers) // until the server closes
	}
}

// forwardStart passes on the server's messages until it is ready for the first
// query.
func forwardStart(client io.Writer, answers *bufio.Reader, opened func()) error {
	const readyForQuery = 'Z'
	for {
		head, err := answers.Peek(5) // the type, and the length without it
		if err != nil {
			return err
		}
		kind, length := head[0], 1+int64(uint32(head[1])<<24|uint32(head[2])<<16|uint32(head[3])<<8|uint32(head[4]))
		if kind == readyForQuery {
			opened()
		}
		if _, err := io.CopyN(client, answers, length); err != nil || kind == readyForQuery {
			return err
		}
	}
}
