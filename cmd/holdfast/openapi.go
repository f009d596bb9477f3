package main

import (
	"fmt"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/httpapi"
)

type openAPICommand struct{}

// Run prints the document that the API serves at /openapi.json.
func (c *openAPICommand) Run(process boot.Process) error {
	document, err := httpapi.OpenAPI()
	if err != nil {
		return err
	}
	if _, err := process.Stdout.Write(document); err != nil {
		return fmt.Errorf("print the document: %w", err)
	}
	return nil
}
