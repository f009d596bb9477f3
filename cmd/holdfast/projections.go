package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/progress"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/wiring"
	"github.com/holdfast/holdfast/projections"
)

type projectionsCommand struct {
	List    projectionsList    `cmd:"" default:"withargs" help:"List the projections (the default)."`
	Rebuild projectionsRebuild `cmd:"" help:"Fold the states of a projection from the audit log again. stocks.availability is read from the stocks."`
	Parked  projectionsParked  `cmd:"" help:"List the keys that are not folded until they are rebuilt, because too many of their events could not be folded."`
	Verify  projectionsVerify  `cmd:"" help:"Compare the availability of every variant with its stock; exit 1 if one differs."`
}

type projectionsList struct{ listed }

// Run prints a line for each projection.
func (c *projectionsList) Run(ctx context.Context, process boot.Process) error {
	read := func(db *pgxpool.Pool) ([]ops.Projection, error) { return ops.Projections(ctx, db) }
	return list(ctx, process, c.listed, "NAME\tKEYS\tPARKED\tPOSITION\tUPDATED", read, func(w io.Writer, s *ops.Projection) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", s.Name, s.Keys, s.Parked, s.Position, s.UpdatedAt.UTC().Format(time.DateTime))
	})
}

type projectionsParked struct{ listed }

// Run prints a line for each parked key.
func (c *projectionsParked) Run(ctx context.Context, process boot.Process) error {
	read := func(db *pgxpool.Pool) ([]ops.ParkedKey, error) { return ops.ParkedKeys(ctx, db) }
	return list(ctx, process, c.listed, "NAME\tTENANT\tKEY\tPARKED\tAUDIT ID\tREASON", read, func(w io.Writer, k *ops.ParkedKey) {
		fmt.Fprintf(w, "%s\t%s\t%q\t%s\t%d\t%q\n", k.Name, k.TenantID, k.Key, k.ParkedAt.UTC().Format(time.DateTime), k.AuditID, k.Reason)
	})
}

type projectionsRebuild struct {
	Name    string `arg:"" help:"The projection's name."`
	Key     string `arg:"" optional:"" help:"Only the state of this key."`
	Tenant  string `help:"Name of the key's tenant. Default: dev." default:"dev" placeholder:"NAME"`
	Partial bool   `help:"Rebuild from a record whose beginning may be pruned: counters then begin at its oldest row, and states of which it has nothing are deleted."`
}

// Run rebuilds the states while the service runs.
func (c *projectionsRebuild) Run(ctx context.Context, process boot.Process) error {
	return withProgram(ctx, process, func(p *boot.Program, db *pgxpool.Pool) error {
		parts, err := wiring.NewProjections(db, p.Log)
		if err != nil {
			return err
		}
		key, err := c.key(ctx, db)
		if err != nil {
			return err
		}
		n, err := c.rebuild(ctx, process.Stderr, db, parts, key)
		if err == nil || n > 0 {
			fmt.Fprintf(process.Stdout, "Rebuilt %d states of %s.\n", n, c.Name)
		}
		return err
	})
}

func (c *projectionsRebuild) rebuild(ctx context.Context, terminal io.Writer, db *pgxpool.Pool, parts *wiring.Projections, key *projections.Key) (int, error) {
	switch {
	case c.Name != parts.Set.AvailabilityName():
		return c.replay(ctx, db, parts, key)
	case key != nil:
		return parts.Set.ReseedOne(ctx, *key)
	}
	total, err := parts.Set.Stocks(ctx)
	if err != nil {
		return 0, err
	}
	bar := progress.New(terminal, total, "states")
	defer bar.Finish()
	return parts.Set.Reseed(ctx, func(seeded int) { bar.Set(int64(seeded)) })
}

// replay folds the states from the record.
func (c *projectionsRebuild) replay(ctx context.Context, db *pgxpool.Pool, parts *wiring.Projections, key *projections.Key) (int, error) {
	missing, err := ops.RecordMissing(ctx, db)
	if err != nil {
		return 0, err
	}
	if missing > 0 && !c.Partial {
		return 0, fmt.Errorf("the audit log has no rows up to id %d. If they were pruned, a rebuild leaves them out and deletes states that have no later rows; if their transactions were rolled back, it is complete. Use --partial if that is right", missing)
	}
	return parts.Feed.RebuildFromRecord(ctx, c.Name, key)
}

// key returns the one key to rebuild, nil for all.
func (c *projectionsRebuild) key(ctx context.Context, db *pgxpool.Pool) (*projections.Key, error) {
	if c.Key == "" {
		return nil, nil
	}
	tenant, err := findTenant(ctx, db, c.Tenant)
	if err != nil {
		return nil, err
	}
	return &projections.Key{TenantID: tenant.TenantID, Key: c.Key}, nil
}

type projectionsVerify struct{}

// Run prints the variants whose availability is wrong.
func (c *projectionsVerify) Run(ctx context.Context, process boot.Process) error {
	return withProgram(ctx, process, func(p *boot.Program, db *pgxpool.Pool) error {
		parts, err := wiring.NewProjections(db, p.Log)
		if err != nil {
			return err
		}
		report, err := parts.Set.Verify(ctx)
		if err != nil {
			return err
		}
		for _, m := range report.Found {
			fmt.Fprintf(process.Stdout, "tenant %s, variant %q: the stock is %+v, the projection has %+v\n", m.Key.TenantID, m.Key.Key, m.Row, m.State)
		}
		fmt.Fprintf(process.Stdout, "%d variants compared, %d wrong.\n", report.Compared, report.Wrong)
		if report.Wrong > 0 {
			return errors.New("the availability of variants differs from their stocks: holdfast projections rebuild " + parts.Set.AvailabilityName())
		}
		return nil
	})
}
