package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/cmd/internal/traffic"
)

type replayCommand struct {
	File        string   `arg:"" help:"One basket per line, items separated by commas; - for standard input."`
	Stock       int64    `required:"" help:"The stock to set for every item." placeholder:"N"`
	URL         []string `name:"url" sep:"none" help:"Address of an API; several are called in turn. Default: HOLDFAST_URL." placeholder:"URL"`
	Connections int      `help:"Calls in flight at one time." default:"64"`
	JSON        bool     `help:"Print the report as one line of JSON."`
}

// Run replays the file and prints the report. The exit code is 1 unless the
// stocks agree with the outcomes.
func (c *replayCommand) Run(ctx context.Context, process boot.Process) error {
	settings, err := config.Load(ctx, process.Env)
	if err != nil {
		return err
	}
	if settings.Client.Key == "" {
		return errNoKey
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
	report, err := traffic.Replay(ctx, traffic.ReplayConfig{
		URLs: urls, Key: settings.Client.Key, Baskets: baskets, Stock: c.Stock, Connections: c.Connections, Progress: progress,
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = json.NewEncoder(process.Stdout).Encode(report)
	} else {
		report.Print(process.Stdout)
	}
	if err == nil && !report.Verified {
		err = boot.ErrFailed
	}
	return err
}
