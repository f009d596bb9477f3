package holdfast_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
)

// readWhole are the packages and the statements that may read a table as a whole:
// checks, measurements, tests, what an operator's commands list or count, what
// the worker reads once as it starts, and a statement that is planned with its
// LIMIT, which is not known here.
var readWhole = []string{
	"verify.", "bench.", "chaos.", "internal/chaos/", "internal/testkit.", "cmd/internal/programtest.",
	"internal/ops.parkedSQL", "internal/ops.projectionsSQL", "internal/ready.stocksSQL",
	"projections.emptySQL", "audit.pruneSQL",
}

// growing are the tables that grow with every request, or with what is sold.
var growing = []string{
	"reservation_requests", "reservations", "audit_log", "inventory_stocks", "postings", "waiting_requests", "idempotency_keys", "checkouts",
	"projection_snapshots",
}

// filledSQL fills the tables: requests that were decided long ago, and for each of
// them a row in the other tables, two in the audit log. $1 is how many requests;
// the normal lane has all of them if $2 is set, otherwise half.
var filledSQL = []string{
	`TRUNCATE reservation_requests, reservations, audit_log, inventory_stocks, postings, waiting_requests, idempotency_keys, checkouts, projection_snapshots`,
	`INSERT INTO reservation_requests (tenant_id, request_id, lane, slot, status, cart_id, variant_id, quantity)
	 SELECT md5((n % 20)::text)::uuid, (lpad(to_hex(n), 8, '0') || substr(md5(n::text), 1, 24))::uuid,
	        CASE WHEN $2 OR n % 2 = 0 THEN 'normal' ELSE 'hot' END, CASE WHEN $2 OR n % 2 = 0 THEN 0 ELSE n % 4 END, 'done', 'cart-' || n / 2, 'variant-' || n % 2000, 1
	 FROM generate_series(1, $1::integer) AS n`,
	`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, customer_id, quantity, status, release_reason,
	                           first_held_at, held_at, expires_at, ended_at)
	 SELECT r.tenant_id, r.request_id, 'inventory.variant', r.variant_id, r.cart_id, 'customer-' || r.sequence / 4, 1, 'expired', 'ttl', made.at, made.at, made.at, made.at
	 FROM reservation_requests r, LATERAL (SELECT now() - interval '1 day' + r.sequence * interval '10 ms' AS at) AS made`,
	`INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, created_at, resource_kind, resource_key, holder_id, quantity, expires_at, before)
	 SELECT r.tenant_id, r.reservation_id, action, 'system', r.held_at, r.resource_kind, r.resource_key, r.holder_id, 1, r.expires_at, '{}'
	 FROM reservations r, unnest(ARRAY['reservation.held', 'reservation.expired']) AS action`,
	`INSERT INTO inventory_stocks (tenant_id, variant_id, stock)
	 SELECT r.tenant_id, r.request_id::text, 1 FROM reservation_requests r`,
	`INSERT INTO projection_snapshots (tenant_id, projection_name, key, state, version)
	 SELECT r.tenant_id, 'stocks.availability', r.request_id::text, '{}', 1 FROM reservation_requests r`,
	`INSERT INTO postings (tenant_id, block, unit_id, position)
	 SELECT r.tenant_id, r.variant_id, r.request_id::text, r.sequence FROM reservation_requests r`,
	`INSERT INTO waiting_requests (tenant_id, variant_id, place, request_id, quantity)
	 SELECT r.tenant_id, r.variant_id, r.sequence, r.request_id, 1 FROM reservation_requests r`,
	`INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint, created_at, kept_with)
	 SELECT r.tenant_id, r.request_id::text, '', r.created_at, CASE r.sequence % 2 WHEN 0 THEN r.request_id END FROM reservation_requests r`,
	`INSERT INTO checkouts (tenant_id, checkout_id, cart_id, payment_reference, status, holds, units, deadline, next_attempt_at, ended_at)
	 SELECT r.tenant_id, r.request_id, r.cart_id, '', 'committed', 1, 1, now(), now(), now() FROM reservation_requests r`,
	`UPDATE lane_slots SET low_water = (SELECT max(sequence) FROM reservation_requests) WHERE slot >= 0`,
}

// TestPlans explains every statement of the module against tables that have
// grown and are analysed. A statement that reads a table as a whole, or a lane as
// a whole, gets slower with every request.
func TestPlans(t *testing.T) {
	t.Parallel()
	tree, err := readTree(".")
	pgtest.Must(t, err)
	statements, _ := findStatements(tree)
	maps.DeleteFunc(statements, func(name, _ string) bool {
		return slices.ContainsFunc(readWhole, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	db := pgtest.New(t)
	pgtest.Must(t, migrations.Up(t.Context(), db, &migrations.Config{Metered: true}))
	pgtest.Exec(t, db, `INSERT INTO lane_slots (lane, slot) SELECT 'hot', n FROM generate_series(0, 3) AS n`)
	for _, normalOnly := range []bool{false, true} {
		for _, sql := range filledSQL {
			var args []any
			if strings.Contains(sql, "$1") {
				args = []any{20_000, normalOnly}
			}
			pgtest.Exec(t, db, sql, args...)
		}
		pgtest.Exec(t, db, `VACUUM (ANALYZE) `+strings.Join(growing, ", "))
		for name, configure := range map[string]func(*pgxpool.Config){
			"of the pools that admit and drain": pg.ForceGenericPlans,
			"of the other pools":                func(*pgxpool.Config) {},
		} {
			config := db.Config()
			configure(config)
			for _, fault := range unbounded(t, config, statements) {
				t.Errorf("with the parameters %s, normal lane only: %t: %s", name, normalOnly, fault)
			}
		}
	}
}

// unbounded returns a line for each scan of a statement that reads a growing
// table, or one lane of it, as a whole.
func unbounded(t *testing.T, config *pgxpool.Config, statements map[string]string) (faults []string) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	pgtest.Must(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		sql, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn, statements[name], nil)
		pgtest.Must(t, err)
		if verb, _, _ := strings.Cut(strings.TrimSpace(sql), " "); !slices.Contains([]string{"SELECT", "WITH", "UPDATE", "DELETE", "INSERT"}, strings.TrimSpace(verb)) {
			continue
		}
		found, err := conn.Prepare(t.Context(), "explained", sql)
		pgtest.Must(t, err)
		explain := `EXPLAIN (FORMAT JSON) EXECUTE explained`
		if n := len(found.ParamOIDs); n > 0 {
			explain += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
		}
		var text []byte
		pgtest.Must(t, conn.QueryRow(t.Context(), explain, pgx.QueryExecModeSimpleProtocol).Scan(&text))
		pgtest.Must(t, conn.Deallocate(t.Context(), "explained"))
		var plans []struct{ Plan node }
		pgtest.Must(t, json.Unmarshal(text, &plans))
		for _, scan := range plans[0].Plan.unbounded(false) {
			faults = append(faults, fmt.Sprintf("%s: %s of %s %s%s", name, scan.Type, scan.Table, scan.Index, scan.Cond))
		}
	}
	return faults
}

// node is a node of a plan.
type node struct {
	Type  string `json:"Node Type"`
	Table string `json:"Relation Name"`
	Index string `json:"Index Name"`
	Cond  string `json:"Index Cond"`
	Plans []node
}

// unbounded returns the scans of the plan that read a growing table, or one lane
// of it, as a whole. A node below a limit reads rows in an order until there are
// enough. reservation_requests_claim_idx has the few requests in isolated retry.
func (n *node) unbounded(limited bool) (scans []*node) {
	limited = limited || n.Type == "Limit"
	ofLane := n.Index == "reservation_requests_stream_idx" && !strings.Contains(n.Cond, "slot")
	ofTable := slices.Contains(growing, n.Table) && n.Index != "" && n.Cond == "" && n.Index != "reservation_requests_claim_idx"
	if slices.Contains(growing, n.Table) && n.Type == "Seq Scan" || !limited && (ofLane || ofTable) { // a bitmap scan has no table beside its index
		scans = append(scans, n)
	}
	for i := range n.Plans {
		scans = append(scans, n.Plans[i].unbounded(limited)...)
	}
	return scans
}
