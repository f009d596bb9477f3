package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// MainCell is the name of the only cell, which DATABASE_URL names.
const MainCell = "main"

// Cell is one database with everything in it.
type Cell struct{ Name, URL string }

// begins is where an entry of CELLS begins. The URL after it may contain commas
// itself, between the hosts of one server.
var begins = regexp.MustCompile(`(?:^|,)\s*([^,=/@]*)=postgres(?:ql)?://`)

var cellName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)

// Named reports whether the environment names a database.
func (d *Database) Named() bool { return d.URL != "" || d.Cells != "" }

// List returns the cells in the order of CELLS, or the one that DATABASE_URL
// names, or none without both. No error contains a URL, which has a password.
func (d *Database) List() (cells []Cell, err error) {
	if d.Cells == "" {
		if d.URL == "" {
			return nil, nil
		}
		return []Cell{{MainCell, d.URL}}, nil
	}
	found := begins.FindAllStringSubmatchIndex(d.Cells, -1)
	if len(found) == 0 || found[0][0] != 0 {
		return nil, errors.New("CELLS must be name=" + databaseForm + ", several with commas between, and the value does not begin so")
	}
	for i, at := range found {
		end := len(d.Cells)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		cell := Cell{Name: d.Cells[at[2]:at[3]], URL: strings.TrimSpace(d.Cells[at[3]+1 : end])}
		if err := cell.check(cells); err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	if d.URL == "" {
		return cells, nil
	}
	for _, cell := range cells {
		if cell.URL == d.URL {
			return cells, nil
		}
	}
	return nil, errors.New("DATABASE_URL names a database that CELLS does not list: leave DATABASE_URL out, or list it as a cell")
}

// check checks the cell against those before it.
func (c Cell) check(before []Cell) error {
	if !cellName.MatchString(c.Name) {
		return fmt.Errorf("CELLS must name each cell by 1 to 32 lower-case letters, digits and hyphens, with a letter first and no hyphen last, not %q", c.Name)
	}
	if _, err := ParseDatabase(c.URL); err != nil {
		return fmt.Errorf("CELLS, cell %s: %s", c.Name, strings.TrimPrefix(err.Error(), "DATABASE_URL "))
	}
	for _, other := range before {
		switch {
		case other.Name == c.Name:
			return fmt.Errorf("CELLS names the cell %s twice", c.Name)
		case other.URL == c.URL:
			return fmt.Errorf("CELLS gives the cells %s and %s the same database", other.Name, c.Name)
		}
	}
	return nil
}
