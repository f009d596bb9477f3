package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

const reservedSQL = `SELECT reserved FROM inventory_stocks WHERE tenant_id = $1 AND variant_id = $2`

// reservedOf is how many units of the hot variant are reserved.
func reservedOf(ctx context.Context, db *pgxpool.Pool, tenant uuid.UUID) (n int64, err error) {
	err = db.QueryRow(ctx, reservedSQL, tenant, hotVariant).Scan(&n)
	return n, err
}

// backlogMax is how long a backlog may take to be decided.
const backlogMax = 2 * time.Minute

// awaitReserved waits until n units of the hot variant are reserved.
func awaitReserved(ctx context.Context, db *pgxpool.Pool, tenant uuid.UUID, n int64) error {
	return await(ctx, backlogMax, 2*time.Millisecond, func() (missing string, err error) {
		reserved, err := reservedOf(ctx, db, tenant)
		if err != nil || reserved == n {
			return "", err
		}
		missing = fmt.Sprintf("%d units are reserved, want %d", reserved, n)
		if reserved > n {
			return "", errors.New(missing)
		}
		return missing, nil
	})
}
