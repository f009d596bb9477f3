package horizon

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// RefuseByName is refuseByName.
var RefuseByName = refuseByName

// ProbeConns is Probe with connections of the caller's.
func ProbeConns(ctx context.Context, n Numbers, a, b *pgx.Conn) error { return n.probe(ctx, a, b) }
