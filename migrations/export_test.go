package migrations

import (
	"context"
	"io/fs"
	"testing/fstest"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
)

// baseline is the version of the schema of 0.1.0.
const baseline = 1

// next is a migration of a later release. It takes the strongest lock on the
// table that calls and decisions write.
const next = `-- +goose Up
ALTER TABLE reservation_requests ADD COLUMN next text;

-- +goose Down
ALTER TABLE reservation_requests DROP COLUMN next;
`

// The tests of this package run with one migration more than the programs, so
// that a migration of tables in use is tested while there is only the baseline.
func init() { //nolint:gochecknoinits // ahead of every test of the package
	all := fstest.MapFS{"99999_next.sql": {Data: []byte(next)}}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		all[name] = &fstest.MapFile{Data: content}
	}
	ours.files = all
}

// DownToBaseline reverts all migrations after the baseline.
func DownToBaseline(ctx context.Context, pool *pgxpool.Pool) error {
	return withMigrationLock(ctx, pool, func() error {
		return ours.run(pool, func(p *goose.Provider) error {
			_, err := p.DownTo(ctx, baseline)
			return err
		})
	})
}
