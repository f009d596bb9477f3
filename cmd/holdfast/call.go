package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"text/tabwriter"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/client"
	"github.com/holdfast/holdfast/cmd/internal/config"
)

// newClient makes a client from HOLDFAST_URL and HOLDFAST_KEY.
func newClient(ctx context.Context, process boot.Process) (*client.Client, error) {
	c, err := config.Load(ctx, process.Env)
	if err != nil {
		return nil, err
	}
	return client.New(c.Client.URL, c.Client.Key)
}

// call makes one call and prints the object in the answer.
func call(ctx context.Context, process boot.Process, method, path string, body any) error {
	api, err := newClient(ctx, process)
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := api.Do(ctx, method, path, body, &answer); err != nil {
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
func table(w io.Writer, heading string, rows int, row func(io.Writer, int)) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, heading)
	for i := range rows {
		row(columns, i)
	}
	return columns.Flush()
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
