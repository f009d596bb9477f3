package pgtest

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Victim is the application_name of the sessions of NewVictim.
const Victim = "victim"

// NewVictim is a pool of one connection to the database of config, for a test that ends its session or its process between
// two steps: next is called ahead of each thing that is sent to the server, and after each COMMIT.
func NewVictim(t testing.TB, config *pgxpool.Config, next func(conn *pgx.Conn)) *pgxpool.Pool {
	t.Helper()
	config.ConnConfig.RuntimeParams["application_name"] = Victim
	config.ConnConfig.Tracer = steps(next)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

type sentKey struct{}

// steps is a tracer that does something ahead of each thing that is sent to the server, and after each COMMIT.
type steps func(conn *pgx.Conn)

func (next steps) TraceQueryStart(ctx context.Context, conn *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	next(conn)
	return context.WithValue(ctx, sentKey{}, query.SQL)
}

func (next steps) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(sentKey{}).(string); strings.EqualFold(sql, "commit") {
		next(conn)
	}
}

func (next steps) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	next(conn)
	return ctx
}

func (steps) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (steps) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
