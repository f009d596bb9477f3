package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/config"
)

// api is a client whose errors are written for people.
type api struct {
	*client.Client
	url string
}

// errNoKey means that the caller has set no variable.
var errNoKey = errors.New("HOLDFAST_KEY is not set: make a key with `holdfast keys create`, or take the one that `holdfast run` prints")

// callTimeout bounds one call. The import of a large file takes longest.
const callTimeout = 10 * time.Minute

// newClient makes a client from HOLDFAST_URL and HOLDFAST_KEY.
func newClient(ctx context.Context, process boot.Process) (*api, error) {
	c, err := config.Load(ctx, process.Env)
	if err != nil {
		return nil, err
	}
	return clientOf(c.Client.URL, c.Client.Key)
}

// clientOf makes a client that sends each call once.
func clientOf(address, key string) (*api, error) {
	if key == "" {
		return nil, errNoKey
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	c, err := client.New(client.Config{
		URLs: []string{address}, Key: key, AttemptTimeout: callTimeout, MaxRetries: -1, HTTP: &http.Client{Transport: transport},
	})
	return &api{c, address}, err
}

// do makes one call with a body, unless that is nil.
func (a *api) do(ctx context.Context, method, path string, body, result any) error {
	made := client.Call{Method: method, Path: path}
	if body != nil {
		var err error
		if made.Body, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode the body: %w", err)
		}
	}
	return a.send(ctx, made, result)
}

// send makes one call, and explains why a service does not answer.
func (a *api) send(ctx context.Context, made client.Call, result any) error {
	err := a.Do(ctx, made, result)
	if failed, ok := errors.AsType[*url.Error](err); ok && failed.Op != "parse" {
		// without the method and the address, which are in the new error
		return fmt.Errorf("nothing answers at %s, which HOLDFAST_URL names (`holdfast run` starts a service on http://localhost:8080): %w", a.url, failed.Err)
	}
	return err
}

// call makes one call and prints the object in the answer.
func call(ctx context.Context, process boot.Process, method, path string, body any) error {
	api, err := newClient(ctx, process)
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := api.do(ctx, method, path, body, &answer); err != nil {
		return err
	}
	return printJSON(process.Stdout, answer)
}

// get is call without a body.
func get(ctx context.Context, process boot.Process, path string) error {
	return call(ctx, process, http.MethodGet, path, nil)
}

// printJSON writes a value as indented JSON.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// table writes rows under a heading, in columns.
func table[T any](w io.Writer, heading string, rows []T, row func(io.Writer, *T)) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, heading)
	for i := range rows {
		row(columns, &rows[i])
	}
	return columns.Flush()
}

// listed is a command that lists what the database has.
type listed struct {
	JSON bool `help:"Print an array of objects."`
}

// list reads the rows and prints them in the form that the command line names.
func list[T any](ctx context.Context, process boot.Process, l listed, heading string, read func(*pgxpool.Pool) ([]T, error), row func(io.Writer, *T)) error {
	return withDatabase(ctx, process, func(db *pgxpool.Pool) error {
		rows, err := read(db)
		switch {
		case err != nil:
			return err
		case l.JSON:
			return printJSON(process.Stdout, rows)
		default:
			return table(process.Stdout, heading, rows, row)
		}
	})
}

// open opens a file that the command line names, - for standard input.
func open(process boot.Process, name string) (file io.Reader, closeFile func(), err error) {
	if name == "-" {
		return process.Stdin, func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { _ = f.Close() }, nil // the file was only read
}
