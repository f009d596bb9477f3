package holdfast

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
)

// ImportStocks sets the stocks that the lines of r describe, CSV or NDJSON, in
// batches. A bad line is rejected, with its number and the reason in the report,
// and stops no other line. Under an idempotency key, an import that is repeated
// as a whole returns the first report.
//
// Errors: *InvalidError for a bad header; ErrKeyReused; those of r and of the
// database, with a report of what was done before.
func (t *Tenant) ImportStocks(ctx context.Context, format inventory.Format, r io.Reader, opts *CallOpts) (inventory.ImportReport, error) {
	options := inventory.ImportOptions{
		OnLane: func(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, wishes []lanes.Placement) error {
			return lanes.PlaceTx(ctx, tx, t.client.inserter, tenantID, wishes)
		},
	}
	return importOnce(ctx, t, opts, "ImportStocks", []any{format}, r, func(r io.Reader) (inventory.ImportReport, error) {
		return inventory.Import(ctx, t.client.db, t.TenantID, format, r, opts.origin(), options)
	})
}

// ImportUnits adds the units that the lines of r describe, CSV or NDJSON, to a
// block, as ImportStocks sets stocks.
func (t *Tenant) ImportUnits(ctx context.Context, block string, format inventory.Format, r io.Reader, opts *CallOpts) (inventory.UnitImportReport, error) {
	return importOnce(ctx, t, opts, "ImportUnits", []any{block, format}, r, func(r io.Reader) (inventory.UnitImportReport, error) {
		return inventory.ImportUnits(ctx, t.client.db, t.TenantID, block, format, r, opts.origin())
	})
}

// importOnce imports r, unless a report is stored under the idempotency key. The
// fingerprint includes all of r, so the key is claimed after r was read. Two
// concurrent imports with one key both take effect, which changes nothing, and
// return the same report.
func importOnce[R any](ctx context.Context, t *Tenant, opts *CallOpts, verb string, args []any, r io.Reader, work func(io.Reader) (R, error)) (report R, err error) {
	if opts.key() == "" {
		return work(r)
	}
	used, err := t.isUsed(ctx, opts.key())
	if err != nil {
		return report, vocabulary(err)
	}
	hash := sha256.New()
	r = io.TeeReader(r, hash)
	if used { // only the hash is needed
		_, err = io.Copy(io.Discard, r)
	} else {
		report, err = work(r)
	}
	if err != nil {
		return report, err
	}
	c := &call[R]{
		tenant: t, opts: opts, verb: verb, args: append(args, hash.Sum(nil)),
		do: func(context.Context, pgx.Tx) (R, error, error) {
			if used {
				return report, nil, fmt.Errorf("%w: the report under the idempotency key was purged meanwhile", ErrOverloaded)
			}
			return report, nil, nil
		},
	}
	return c.run(ctx)
}

// isUsed reports whether a result is stored under the key. It claims the key
// with a fingerprint that no call has, and rolls back.
func (t *Tenant) isUsed(ctx context.Context, key string) (used bool, err error) {
	rollback := errors.New("roll back")
	err = pgx.BeginFunc(ctx, t.client.db, func(tx pgx.Tx) error {
		_, err := tenants.ClaimKeyTx(ctx, tx, t.TenantID, key, [sha256.Size]byte{})
		if errors.Is(err, tenants.ErrKeyReused) {
			used = true
			return rollback
		}
		if err == nil {
			err = requestrows.ReserveKeyTx(ctx, tx, t.TenantID, key)
		}
		if err != nil {
			return err
		}
		return rollback
	})
	if errors.Is(err, rollback) {
		err = nil
	}
	return used, err
}
