package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/client"
	"github.com/holdfast/holdfast/cmd/internal/config"
)

// dial makes the client that HOLDFAST_URL and HOLDFAST_KEY describe.
func dial(ctx context.Context, process boot.Process) (*client.Client, error) {
	c, err := config.Load(ctx, process.Env)
	if err != nil {
		return nil, err
	}
	return client.New(c.Client.URL, c.Client.Key)
}

// call makes one call and prints the object it answers.
func call(ctx context.Context, process boot.Process, method, path string, body any) error {
	api, err := dial(ctx, process)
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
