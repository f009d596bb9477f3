package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/boot"
)

type unitsCommand struct {
	Import unitsImport `cmd:"" help:"Add units to a block, from CSV or NDJSON."`
	List   unitsList   `cmd:"" help:"List the units of a block."`
}

func unitsPath(block string) string { return client.Path("units", block) }

type unitsImport struct {
	Block string `arg:"" help:"The block's id."`
	importFile
}

// Run sends the file and prints the counts and the lines that were rejected.
func (c *unitsImport) Run(ctx context.Context, process boot.Process) error {
	return c.send(ctx, process, http.MethodPut, unitsPath(c.Block)+"/import")
}

type unitsList struct {
	Block string `arg:"" help:"The block's id."`
	JSON  bool   `help:"Print one object per line."`
}

// unitsPage is how many units one call lists.
const unitsPage = 500

// Run lists all units of the block, page by page.
func (c *unitsList) Run(ctx context.Context, process boot.Process) error {
	return eachPage(ctx, process, unitsPath(c.Block), unitsPage, func(page *listPage, first bool) error {
		if first && !c.JSON {
			fmt.Fprintf(process.Stdout, "%d active, %d pending, %d inactive\n", page.Active, page.Pending, page.Inactive)
		}
		return c.print(process.Stdout, page.Items, first)
	})
}

func (c *unitsList) print(w io.Writer, items []json.RawMessage, first bool) error {
	if c.JSON {
		for _, item := range items {
			fmt.Fprintf(w, "%s\n", item)
		}
		return nil
	}
	const columns = "%-40s %12v  %s\n"
	if first {
		fmt.Fprintf(w, columns, "UNIT", "POSITION", "STATUS")
	}
	for _, item := range items {
		var u struct {
			UnitID   string `json:"unit_id"`
			Position int64  `json:"position"`
			Status   string `json:"status"`
		}
		if err := json.Unmarshal(item, &u); err != nil {
			return fmt.Errorf("read a unit: %w", err)
		}
		fmt.Fprintf(w, columns, u.UnitID, u.Position, u.Status)
	}
	return nil
}
