package main

import (
	"context"
	"errors"

	"github.com/sethvargo/go-envconfig"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/demo"
)

type demoCommand struct {
	Port   *int `help:"Port on 127.0.0.1. Default: any that is free." placeholder:"N"`
	Stock  int  `help:"Units of the hot variant. Default: 1000." placeholder:"N"`
	Buyers int  `help:"How many want one. Default: 10000." placeholder:"N"`
}

// Run starts the all-in-one, holds a flash sale through its API, and ends with exit code 0 only if all of it went as
// promised. The log begins at warn unless LOG_LEVEL says otherwise, so that the sale can be seen.
func (c *demoCommand) Run(ctx context.Context, process boot.Process) (err error) {
	process.Env = envconfig.MultiLookuper(process.Env, envconfig.MapLookuper(map[string]string{"LOG_LEVEL": "warn"}))
	port := c.Port
	if port == nil {
		port = new(int)
	}
	program, err := newProgram(ctx, process, port)
	if err != nil {
		return err
	}
	defer program.Close()
	local, err := boot.StartLocal(ctx, program, boot.LocalOptions{})
	switch {
	case err != nil && ctx.Err() != nil: // stopped before it was ready: errors of the interruption explain nothing
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, local.Stop()) }()
	return demo.Run(ctx, demo.Config{
		URL: local.URL, Key: local.Key, Database: local.Database, Out: process.Stdout, Stock: c.Stock, Buyers: c.Buyers,
	})
}
