package projections

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// readMax is how many channels one call of Snapshots or Versions reads at most.
const readMax = 10_000

const snapshotsSQL = `
SELECT asked.place, p.version, p.state
FROM unnest($2::int[], $3::text[], $4::text[]) AS asked (place, projection_name, key)
JOIN projection_snapshots p
    ON p.tenant_id = $1 AND p.projection_name = asked.projection_name AND p.key = asked.key AND p.version > 0
ORDER BY asked.place
LIMIT $5`

// Snapshots returns a frame with the present state for each of the channels
// that has one, in their order. Its event is "snapshot", and First and Version
// are the state's version. It is one statement for at most 10,000 channels, and
// locks nothing.
func Snapshots(ctx context.Context, db audit.Querier, tenantID uuid.UUID, channels []string) ([]Frame, error) {
	at, err := placesOf(channels)
	if err != nil || len(at.place) == 0 {
		return nil, err
	}
	rows, _ := db.Query(ctx, snapshotsSQL, tenantID, at.place, at.name, at.key, len(at.place))
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Frame, error) {
		var place int32
		var version int64
		var state json.RawMessage
		err := row.Scan(&place, &version, &state)
		return Frame{TenantID: tenantID, Channel: channels[place], Event: eventSnapshot, First: version, Version: version, Payload: state}, err
	})
	if err != nil {
		return nil, failed(fmt.Sprintf("read %d states", len(channels)), err)
	}
	return found, nil
}

const versionsSQL = `
SELECT asked.place, p.version
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[]) AS asked (tenant_id, place, projection_name, key)
JOIN projection_snapshots p
    ON p.tenant_id = asked.tenant_id AND p.projection_name = asked.projection_name AND p.key = asked.key
LIMIT $5`

// Versions returns the present version of each of the channels, channels[i]
// being of tenantIDs[i]; 0 for a channel without a state. It is one statement
// for at most 10,000 channels, reads no states and locks nothing.
func Versions(ctx context.Context, db audit.Querier, tenantIDs []uuid.UUID, channels []string) ([]int64, error) {
	versions := make([]int64, len(channels))
	if len(tenantIDs) != len(channels) {
		return nil, fmt.Errorf("projection: %d tenants for %d channels", len(tenantIDs), len(channels))
	}
	at, err := placesOf(channels)
	if err != nil || len(at.place) == 0 {
		return versions, err
	}
	tenants := make([][16]byte, len(at.place))
	for i, place := range at.place {
		tenants[i] = tenantIDs[place]
	}
	rows, _ := db.Query(ctx, versionsSQL, tenants, at.place, at.name, at.key, len(at.place))
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[channelVersion])
	if err != nil {
		return nil, failed(fmt.Sprintf("read %d versions", len(channels)), err)
	}
	for _, v := range found {
		versions[v.Place] = v.Version
	}
	return versions, nil
}

// channelVersion is the version of the channel with that index.
type channelVersion struct {
	Place   int32
	Version int64
}

// asked are the names and keys that channels can stand for, each with the index
// of its channel.
type asked struct {
	place     []int32
	name, key []string
}

func placesOf(channels []string) (at asked, err error) {
	if len(channels) > readMax {
		return at, fmt.Errorf("projection: %d channels, want at most %d", len(channels), readMax)
	}
	for i, channel := range channels {
		for _, nameAndKey := range places(channel) {
			at.place, at.name, at.key = append(at.place, int32(i)), append(at.name, nameAndKey[0]), append(at.key, nameAndKey[1])
		}
	}
	return at, nil
}
