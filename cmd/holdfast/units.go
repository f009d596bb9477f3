package main

import (
	"context"
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

// unit is a unit of a block.
type unit struct {
	UnitID   string `json:"unit_id"`
	Position int64  `json:"position"`
	Status   string `json:"status"`
}

// unitsPage is how many units one call lists.
const unitsPage = 500

// Run lists all units of the block, page by page.
func (c *unitsList) Run(ctx context.Context, process boot.Process) error {
	const columns = "%-40s %12v  %s\n"
	return eachPage(ctx, process, unitsPath(c.Block), unitsPage, func(page *listPage, first bool) error {
		if first && !c.JSON {
			fmt.Fprintf(process.Stdout, "%d active, %d pending, %d inactive\n", page.Active, page.Pending, page.Inactive)
			fmt.Fprintf(process.Stdout, columns, "UNIT", "POSITION", "STATUS")
		}
		return printItems(process.Stdout, page.Items, c.JSON, func(w io.Writer, u *unit) {
			fmt.Fprintf(w, columns, u.UnitID, u.Position, u.Status)
		})
	})
}
