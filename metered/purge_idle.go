package metered

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ScopePosition is how far a purge has come in its walk through scopes, of budgets or of rates; the zero value is the
// beginning.
type ScopePosition struct {
	TenantID uuid.UUID
	Scope    string
}

// PurgedScopes is what a purge did on its walk.
type PurgedScopes struct {
	// Last is the last scope it looked at, where the next purge goes on; More says that there may be others behind it.
	Last    ScopePosition
	More    bool
	Deleted int64
}

// purgeIdle runs a purge that looks at up to limit scopes behind a position and deletes those that are idle.
func purgeIdle(ctx context.Context, db *pgxpool.Pool, what, statement string, after ScopePosition, limit int, added ...any) (purged PurgedScopes, err error) {
	var looked int64
	err = db.QueryRow(ctx, statement, append([]any{after.TenantID, after.Scope, limit}, added...)...).
		Scan(&purged.Last.TenantID, &purged.Last.Scope, &purged.Deleted, &looked)
	if errors.Is(err, pgx.ErrNoRows) {
		return PurgedScopes{}, nil
	}
	if err != nil {
		return PurgedScopes{}, fmt.Errorf("purge %s: %w", what, err)
	}
	purged.More = looked == int64(limit)
	return purged, nil
}
