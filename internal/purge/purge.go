package purge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Old deletes rows that are older than age by the database's clock, and returns
// how many. The statement's parameters are the age and limit, the number of
// rows that it deletes at most. what names the rows in errors.
func Old(ctx context.Context, db *pgxpool.Pool, what, statement string, age time.Duration, limit int) (int64, error) {
	tag, err := db.Exec(ctx, statement, age, limit)
	if err != nil {
		return 0, fmt.Errorf("purge %s: %w", what, err)
	}
	return tag.RowsAffected(), nil
}

// Position is a key of the table, (tenant, scope). The zero value is before
// the first row.
type Position struct {
	TenantID uuid.UUID
	Scope    string
}

// Step is what one step of a walk did.
type Step struct {
	// Last is the last row that was read, where the next step starts.
	Last Position
	// More means that rows may follow Last.
	More    bool
	Deleted int64
}

// Idle runs one step. The statement reads up to limit rows after a position and
// deletes the idle ones among them. It returns one row: the key of the last row
// read, the number of rows deleted and the number read. Its parameters are the
// tenant and scope of the position, the limit, and then args. what names the
// rows in errors.
func Idle(ctx context.Context, db *pgxpool.Pool, what, statement string, after Position, limit int, args ...any) (step Step, err error) {
	var read int64
	err = db.QueryRow(ctx, statement, append([]any{after.TenantID, after.Scope, limit}, args...)...).
		Scan(&step.Last.TenantID, &step.Last.Scope, &step.Deleted, &read)
	if errors.Is(err, pgx.ErrNoRows) {
		return Step{}, nil
	}
	if err != nil {
		return Step{}, fmt.Errorf("purge %s: %w", what, err)
	}
	step.More = read == int64(limit)
	return step, nil
}
