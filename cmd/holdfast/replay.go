package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/cmd/internal/replay"
)

type replayCommand struct {
	File        string   `arg:"" help:"Baskets, a line each, items separated by commas; - for standard input."`
	Stock       int64    `required:"" help:"What every item's stock is set to." placeholder:"N"`
	URL         []string `name:"url" sep:"none" help:"Address of an API; several are taken in turn. Default: HOLDFAST_URL." placeholder:"URL"`
	Connections int      `help:"Calls in flight at one time." default:"64"`
	JSON        bool     `help:"Print the report as one line of JSON."`
}

// Run replays the file and prints what came of it: exit code 1 unless the stocks say the same as the outcomes.
func (c *replayCommand) Run(ctx context.Context, process boot.Process) error {
	settings, err := config.Load(ctx, process.Env)
	if err != nil {
		return err
	}
	urls := c.URL
	if len(urls) == 0 {
		urls = []string{settings.Client.URL}
	}
	for _, address := range urls {
		if u, err := url.Parse(address); err != nil || u.Host == "" {
			return &boot.UsageError{Message: fmt.Sprintf("--url must be the address of a Holdfast API, http://host:port, not %q", address)}
		}
	}
	baskets, closeFile, err := open(process, c.File)
	if err != nil {
		return err
	}
	defer closeFile()
	progress := process.Stderr
	if c.JSON {
		progress = nil
	}
	report, err := replay.Run(ctx, replay.Config{
		URLs: urls, Key: settings.Client.Key, Baskets: baskets, Stock: c.Stock, Connections: c.Connections, Progress: progress,
	})
	if err != nil {
		return err
	}
	if err := c.print(process.Stdout, report); err != nil {
		return err
	}
	if !report.Verified {
		return boot.ErrFailed
	}
	return nil
}

func (c *replayCommand) print(w io.Writer, report replay.Report) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(report)
	}
	report.Print(w)
	return nil
}

// open opens a file that a command line names, - for standard input.
func open(process boot.Process, name string) (file io.Reader, closeFile func(), err error) {
	if name == "-" {
		return process.Stdin, func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { _ = f.Close() }, nil // it was only read
}
