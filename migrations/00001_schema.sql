-- +goose Up
-- The schema of 0.1.0, in the order of its layers: tenants; stocks; requests and
-- the reservations that they make; the record of every transition and its
-- subscriptions; lanes; units with their own identity; checkouts; read models;
-- maintenance. Package metered has its own set of migrations.
--
-- tenant_id is the first column of every primary and unique key, except of rows
-- that no tenant owns. Busy tables are vacuumed early, and their pages have room
-- for heap-only updates, because no index mentions a column that deciding a
-- request or ending a reservation changes.

-- The key under which indexes have a cart of a tenant, or another holder. Ids of
-- carts come in no order, so each new row changes a page anywhere in these indexes.
-- With the hash they have a third of the pages.
CREATE FUNCTION holder_hash(tenant_id uuid, holder_id text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT hashtext(holder_id) # uuid_hash(tenant_id)';

-- Whether two holders are the same. Postgres puts the body into the query, and reads
-- the rows by an index with holder_hash. It does not combine that with an index of
-- the tenant, because none is used for IS NOT DISTINCT FROM.
CREATE FUNCTION same_holder(tenant_id uuid, holder_id text, other_tenant_id uuid, other_holder_id text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT holder_hash(tenant_id, holder_id) = holder_hash(other_tenant_id, other_holder_id)
            AND holder_id = other_holder_id AND tenant_id IS NOT DISTINCT FROM other_tenant_id';

-- The same for the hash of a resource's key.
CREATE FUNCTION same_key(key text, other_key text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT hashtext(key) = hashtext(other_key) AND key = other_key';

CREATE TABLE tenants (
    tenant_id  uuid        NOT NULL,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tenants_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenants_name_key UNIQUE (name),
    CONSTRAINT tenants_name_length CHECK (char_length(name) BETWEEN 1 AND 128)
);

-- Whether this database, which is one cell of several, serves the tenant. A
-- tenant is active in one cell at most. While it moves to the cell moves_to, it is
-- moving here and arriving there, and then gone here. closed means that its fence
-- refuses every change. copied_xid is, while the tenant arrives, the xmin of the
-- snapshot of the other cell up to which its rows are copied. arrived_at is when
-- the tenant came here from another cell, whose sequences its earlier rows have
-- their numbers from; NULL for one that was made here.
CREATE TABLE tenant_state (
    tenant_id  uuid        NOT NULL,
    state      text        NOT NULL DEFAULT 'active',
    moves_to   text,
    closed     boolean     NOT NULL DEFAULT false,
    copied_xid xid8,
    arrived_at timestamptz,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tenant_state_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenant_state_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenants (tenant_id),
    CONSTRAINT tenant_state_known CHECK (state IN ('active', 'arriving', 'moving', 'gone')),
    CONSTRAINT tenant_state_closed_while_moving CHECK (NOT closed OR state IN ('moving', 'gone'))
);

CREATE INDEX tenant_state_elsewhere_idx ON tenant_state (tenant_id) WHERE state <> 'active';

-- The fence of a tenant that moves is a trigger on each table with its rows,
-- which calls this function for rows of this tenant only. While the tenant is
-- moving, a fence with the argument intake refuses its rows, and a fence that is
-- closed all rows. The share lock makes closing it wait for the transactions that
-- have written rows of the tenant.
-- +goose StatementBegin
CREATE FUNCTION tenant_fence() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    refused boolean;
BEGIN
    SELECT s.state <> 'active' AND (s.closed OR TG_ARGV[0] = 'intake') INTO refused
    FROM tenant_state s
    WHERE s.tenant_id = NEW.tenant_id
    FOR SHARE;
    IF refused THEN
        RAISE EXCEPTION 'the tenant % moves to another database', NEW.tenant_id USING ERRCODE = 'HF001';
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- A key's secret has 256 bits, so its hash is unique without a unique index,
-- which could not begin with the tenant.
CREATE TABLE api_keys (
    tenant_id  uuid        NOT NULL,
    key_id     uuid        NOT NULL,
    name       text        NOT NULL,
    prefix     text        NOT NULL,
    hash       bytea       NOT NULL,
    scopes     text[]      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at timestamptz,
    CONSTRAINT api_keys_pkey PRIMARY KEY (tenant_id, key_id),
    CONSTRAINT api_keys_tenant_fkey FOREIGN KEY (tenant_id) REFERENCES tenants (tenant_id),
    CONSTRAINT api_keys_scopes_known CHECK (scopes <@ ARRAY['cart', 'stock', 'ops'] AND cardinality(scopes) > 0)
);

CREATE INDEX api_keys_hash_idx ON api_keys USING hash (hash);

-- The stored responses of synchronous calls, written in the transaction of the
-- call. kept_with is the checkout that the call began, if it began one. Such a
-- key is deleted with its checkout, and every other one by its age.
CREATE TABLE idempotency_keys (
    tenant_id       uuid        NOT NULL,
    idempotency_key text        NOT NULL,
    fingerprint     bytea       NOT NULL,
    status_code     smallint,
    body            bytea,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    kept_with       uuid,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, idempotency_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX idempotency_keys_created_idx ON idempotency_keys (created_at) WHERE kept_with IS NULL;

CREATE INDEX idempotency_keys_kept_idx ON idempotency_keys (tenant_id, kept_with) WHERE kept_with IS NOT NULL;

-- The counters of a variant, and how it is sold. admission = token: adding units
-- of the variant to a cart requires an admission token, if metered commands are
-- on.
--
-- due_from: no hold of the variant with an earlier deadline is held. Under the
-- lock of this row, a new hold lowers it, and an ending raises it. After a change
-- of the holds by other means, set it to the first deadline that is held.
--
-- named_units: the variant is a block whose units have their own identity. Its
-- stock is the number of its postings that are not inactive, and reserved the
-- number of those that are pending. units counts all of its postings, and
-- last_position is the highest of their positions.
--
-- preorder_max is how far reserved may exceed the stock of a variant that allows
-- backorder; NULL: without limit. sale has the rules of its sale, NULL for none:
-- starts_at, ends_at, quantity_min, quantity_step, max_per_customer,
-- customer_period_seconds, claim_seconds, and the group of the variant.
--
-- waiting: requests may wait in line for the variant. If it is false, none does.
CREATE TABLE inventory_stocks (
    tenant_id        uuid        NOT NULL,
    variant_id       text        NOT NULL,
    stock            bigint      NOT NULL,
    reserved         bigint      NOT NULL DEFAULT 0,
    tracked          boolean     NOT NULL DEFAULT true,
    backorder        boolean     NOT NULL DEFAULT false,
    hold_ttl_seconds integer,
    max_per_cart     integer,
    lane             text        NOT NULL DEFAULT 'auto',
    admission        text        NOT NULL DEFAULT 'open',
    preorder_max     bigint,
    sale             jsonb,
    waiting          boolean     NOT NULL DEFAULT false,
    named_units      boolean     NOT NULL DEFAULT false,
    units            bigint      NOT NULL DEFAULT 0,
    last_position    bigint      NOT NULL DEFAULT 0,
    due_from         timestamptz NOT NULL DEFAULT '-infinity',
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT inventory_stocks_pkey PRIMARY KEY (tenant_id, variant_id),
    CONSTRAINT inventory_stocks_variant_length CHECK (char_length(variant_id) BETWEEN 1 AND 128),
    CONSTRAINT inventory_stocks_reserved_not_negative CHECK (reserved >= 0),
    CONSTRAINT inventory_stocks_no_oversell CHECK (reserved <= stock + coalesce(preorder_max, 0) OR backorder AND preorder_max IS NULL OR NOT tracked),
    CONSTRAINT inventory_stocks_ttl_positive CHECK (hold_ttl_seconds > 0),
    CONSTRAINT inventory_stocks_max_positive CHECK (max_per_cart > 0),
    CONSTRAINT inventory_stocks_preorder_backordered CHECK (preorder_max IS NULL OR backorder AND preorder_max > 0),
    CONSTRAINT inventory_stocks_sale_given CHECK (jsonb_typeof(sale) = 'object' AND sale <> '{}'),
    CONSTRAINT inventory_stocks_lane_known CHECK (lane IN ('auto', 'hot', 'normal')),
    CONSTRAINT inventory_stocks_admission_known CHECK (admission IN ('open', 'token')),
    CONSTRAINT inventory_stocks_units_counted CHECK (NOT named_units OR (tracked AND NOT backorder)),
    CONSTRAINT inventory_stocks_units_known CHECK (NOT named_units OR stock <= units)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX inventory_stocks_group_idx ON inventory_stocks (tenant_id, (sale->>'group'), variant_id) WHERE sale->>'group' IS NOT NULL;

-- The limit of a group: how many units of all its variants a customer may have.
-- The variants name their group.
CREATE TABLE stock_groups (
    tenant_id               uuid        NOT NULL,
    group_id                text        NOT NULL,
    max_per_customer        integer,
    customer_period_seconds integer,
    created_at              timestamptz NOT NULL DEFAULT transaction_timestamp(),
    updated_at              timestamptz NOT NULL DEFAULT transaction_timestamp(),
    CONSTRAINT stock_groups_pkey PRIMARY KEY (tenant_id, group_id),
    CONSTRAINT stock_groups_id_length CHECK (char_length(group_id) BETWEEN 1 AND 128),
    CONSTRAINT stock_groups_max_positive CHECK (max_per_customer > 0),
    CONSTRAINT stock_groups_period_limits CHECK (customer_period_seconds IS NULL OR max_per_customer IS NOT NULL AND customer_period_seconds > 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- Every API process that cannot check tokens queries whether such a variant
-- exists.
CREATE INDEX inventory_stocks_guarded_idx ON inventory_stocks (tenant_id, variant_id) WHERE admission <> 'open';

-- For the search of variants by the beginning of their ids. The order of the
-- primary key is that of the database's collation, in which the ids with one
-- beginning need not be neighbours. The planner uses this index for no other
-- query, because their comparisons have another collation.
CREATE INDEX inventory_stocks_prefix_idx ON inventory_stocks (tenant_id, variant_id COLLATE "C");

-- A kit is sold as one, and has no stock of its own. parts is what one of it
-- needs: [{"variant_id":"tent","quantity":1}], each variant once. A request for a
-- kit has the parts as they were when it was accepted.
CREATE TABLE kits (
    tenant_id  uuid        NOT NULL,
    kit_id     text        NOT NULL,
    parts      jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT kits_pkey PRIMARY KEY (tenant_id, kit_id),
    CONSTRAINT kits_id_length CHECK (char_length(kit_id) BETWEEN 1 AND 128),
    CONSTRAINT kits_parts_counted CHECK (jsonb_typeof(parts) = 'array' AND jsonb_array_length(parts) BETWEEN 1 AND 20)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- The waiting list: the requests that wait in line for units of a variant. place
-- is the sequence number of the request. Rows are added under the lock of the
-- stock, and deleted with the status waiting of the request.
CREATE TABLE waiting_requests (
    tenant_id  uuid    NOT NULL,
    variant_id text    NOT NULL,
    place      bigint  NOT NULL,
    request_id uuid    NOT NULL,
    quantity   integer NOT NULL,
    CONSTRAINT waiting_requests_pkey PRIMARY KEY (tenant_id, variant_id, place),
    CONSTRAINT waiting_requests_quantity_positive CHECK (quantity > 0)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- The first in line of each quantity.
CREATE INDEX waiting_requests_fit_idx ON waiting_requests (tenant_id, variant_id, quantity, place);

-- Units that are set aside for a channel or a voucher until expires_at. Those that
-- are left are held by reservation_id, whose holder is '/'. A hold from the
-- allotment has its id. quantity is what is left and what was taken: units that are
-- released go back to it, until it has ended.
CREATE TABLE allotments (
    tenant_id      uuid        NOT NULL,
    variant_id     text        NOT NULL,
    allotment_id   text        NOT NULL,
    quantity       bigint      NOT NULL,
    expires_at     timestamptz NOT NULL,
    reservation_id uuid        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT allotments_pkey PRIMARY KEY (tenant_id, variant_id, allotment_id),
    CONSTRAINT allotments_id_length CHECK (char_length(allotment_id) BETWEEN 1 AND 128),
    CONSTRAINT allotments_quantity_positive CHECK (quantity > 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX allotments_expires_idx ON allotments (expires_at);

-- The status table. lane and slot are a hint that admission sets, and never
-- change. Only an isolated retry sets claim_expires_at. A request of the kind wait
-- that came up short has the status waiting, and a row in waiting_requests.
--
-- units are the units of a block that the caller wants:
-- {"unit_ids":["A1","A2"]}, {"any_of":true} or {"contiguous":true}; or the allotment
-- whose units it wants: {"allotment":"fans"}. NULL for a request that names a
-- variant and a quantity. trace_parent is the W3C trace
-- context of a sampled call, to which the traces of its decision and of later
-- reads are linked; NULL for all other requests. customer_id is whose limits
-- apply, here and in reservations; NULL: the cart is its own customer.
--
-- A request of several lines has the kind lines, the lines as JSON, and '/' as
-- its variant, which no variant has. Each part of a line that is decided is a
-- request of its own, with parent_id and the line's place from 0. If a variant
-- of the lines is hot, the parts are queued in their own streams, and open_parts
-- counts those that are undecided: the request is processing, and has no claim
-- while there are any. Otherwise all parts are decided with the request, and
-- open_parts stays NULL. kit_id is the kit of whose line it is a part.
CREATE TABLE reservation_requests (
    tenant_id        uuid        NOT NULL,
    request_id       uuid        NOT NULL,
    sequence         bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim_epoch      integer     NOT NULL DEFAULT 0,
    quantity         integer     NOT NULL,
    slot             smallint    NOT NULL DEFAULT 0,
    attempts         smallint    NOT NULL DEFAULT 0,
    lane             text        NOT NULL,
    status           text        NOT NULL DEFAULT 'queued',
    kind             text        NOT NULL DEFAULT 'add',
    cart_id          text        NOT NULL,
    variant_id       text        NOT NULL,
    units            jsonb,
    reason           text,
    actor_id         text,
    correlation_id   text,
    trace_parent     text,
    idempotency_key  text,
    fingerprint      bytea,
    retry_of         uuid,
    claim_expires_at timestamptz,
    customer_id      text,
    lines            jsonb,
    parent_id        uuid,
    line             smallint,
    kit_id           text,
    open_parts       smallint,
    CONSTRAINT reservation_requests_pkey PRIMARY KEY (tenant_id, request_id),
    CONSTRAINT reservation_requests_quantity_positive CHECK (quantity > 0),
    CONSTRAINT reservation_requests_lane_known CHECK (lane IN ('hot', 'normal')),
    CONSTRAINT reservation_requests_kind_known CHECK (kind IN ('add', 'set', 'lines', 'wait')),
    CONSTRAINT reservation_requests_lines_given CHECK ((kind = 'lines') = (lines IS NOT NULL) AND (kind = 'lines') = (variant_id = '/')),
    CONSTRAINT reservation_requests_part_of_line CHECK ((parent_id IS NULL) = (line IS NULL) AND (parent_id IS NULL OR kind = 'add')),
    CONSTRAINT reservation_requests_kit_of_part CHECK (kit_id IS NULL OR parent_id IS NOT NULL),
    CONSTRAINT reservation_requests_parts_counted CHECK (open_parts IS NULL OR kind = 'lines' AND open_parts >= 0),
    CONSTRAINT reservation_requests_status_known CHECK (status IN ('queued', 'processing', 'waiting', 'done', 'failed')),
    CONSTRAINT reservation_requests_waiting_kind CHECK (status <> 'waiting' OR kind = 'wait'),
    CONSTRAINT reservation_requests_reason_given CHECK ((status = 'failed') = (reason IS NOT NULL)),
    CONSTRAINT reservation_requests_key_fingerprinted CHECK ((idempotency_key IS NULL) = (fingerprint IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX reservation_requests_idempotency_key ON reservation_requests (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE INDEX reservation_requests_stream_idx ON reservation_requests (lane, slot, sequence);

CREATE INDEX reservation_requests_cart_idx ON reservation_requests (holder_hash(tenant_id, cart_id), sequence);

CREATE INDEX reservation_requests_claim_idx ON reservation_requests (claim_expires_at) WHERE claim_expires_at IS NOT NULL;

-- A failed request is retried at most once: a retry that fails is retried
-- itself. retry_of never changes, so deciding a request writes no entry.
CREATE UNIQUE INDEX reservation_requests_retry_idx ON reservation_requests (tenant_id, retry_of) WHERE retry_of IS NOT NULL;

-- The parts of a request of several lines. parent_id never changes.
CREATE INDEX reservation_requests_parent_idx ON reservation_requests (tenant_id, parent_id) WHERE parent_id IS NOT NULL;

-- A hold made for a request has the request's id, so the primary key forbids a
-- second hold for one request. unit_ids are the units that a hold reserved, as a
-- JSON array in the order of their positions; NULL for counted units.
-- checkout_id is the checkout that a hold is locked to: no other verb ends or
-- extends it. kit_id is the kit that the hold is a part of, and part_of the
-- reservation of which this one was committed as a part. returned_quantity is how
-- many of its units came back after the commit, NULL for none; they are no longer
-- among its unit_ids. allotment_id is the allotment whose units the hold took, with E'\x1f'
-- behind it if there is a later one of that id. What is left
-- of an allotment is a reservation with it and the holder '/', which has 0 units once
-- all are taken. No index mentions a column that an ending changes, so an
-- ending writes no index.
CREATE TABLE reservations (
    tenant_id       uuid        NOT NULL,
    reservation_id  uuid        NOT NULL,
    resource_kind   text        NOT NULL,
    resource_key    text        NOT NULL,
    resource_window text,
    unit_ids        jsonb,
    holder_id       text        NOT NULL,
    customer_id     text,
    kit_id          text,
    allotment_id    text,
    part_of         uuid,
    checkout_id     uuid,
    quantity        bigint      NOT NULL,
    returned_quantity bigint,
    status          text        NOT NULL DEFAULT 'held',
    release_reason  text,
    first_held_at   timestamptz NOT NULL,
    held_at         timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    ended_at        timestamptz,
    dismissed_at    timestamptz,
    CONSTRAINT reservations_pkey PRIMARY KEY (tenant_id, reservation_id),
    CONSTRAINT reservations_quantity_positive CHECK (quantity > 0 OR quantity = 0 AND holder_id = '/' AND allotment_id IS NOT NULL),
    CONSTRAINT reservations_returned_bounds CHECK (returned_quantity IS NULL OR returned_quantity BETWEEN 1 AND quantity AND status = 'committed'),
    CONSTRAINT reservations_status_known CHECK (status IN ('held', 'committed', 'released', 'expired')),
    CONSTRAINT reservations_ended_once CHECK ((status = 'held') = (ended_at IS NULL)),
    CONSTRAINT reservations_reason_given CHECK ((status IN ('released', 'expired')) = (release_reason IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX reservations_holder_idx ON reservations (holder_hash(tenant_id, holder_id), hashtext(resource_key));

-- What a customer has held and bought of a variant.
CREATE INDEX reservations_customer_idx ON reservations (tenant_id, customer_id, resource_key) WHERE customer_id IS NOT NULL;

CREATE INDEX reservations_checkout_idx ON reservations (tenant_id, checkout_id) WHERE checkout_id IS NOT NULL;

-- The reservations of one resource in the order of their deadlines, held or
-- ended. What is due of a variant is found from its due_from on. The predicate is
-- true of every row that has units. Only queries for a whole resource repeat it, because for a
-- holder's reservations of one resource the planner could choose this index too,
-- and read all of a hot resource.
CREATE INDEX reservations_resource_idx ON reservations (tenant_id, resource_key, expires_at) WHERE quantity > 0;

-- For the sweep, which begins at the mark of its kind, and for the purge. Its
-- predicate is true of these rows too, and not implied by that of the other.
CREATE INDEX reservations_deadline_idx ON reservations (expires_at) WHERE quantity >= 1;

-- One row per resource kind. due_from: no reservation of the kind with an earlier
-- deadline is held, so sweeps read each reservation once. It moves up to about
-- noted_at once all transactions below noted_xid have ended, because the holds of
-- these are visible then, and later ones have later deadlines. After a change of
-- the reservations by other means, delete the rows.
CREATE TABLE reservation_marks (
    resource_kind text        NOT NULL,
    due_from      timestamptz NOT NULL DEFAULT '-infinity',
    noted_at      timestamptz NOT NULL,
    noted_xid     xid8        NOT NULL,
    CONSTRAINT reservation_marks_pkey PRIMARY KEY (resource_kind)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- One row per transition. audit_id is drawn while the target's row is locked, so
-- the rows of a target are in the order of their transitions. It is drawn after
-- the transaction has its id, which lets subscriptions read in its order.
--
-- A transition of a reservation records the state after it in the columns from
-- resource_kind on. before has the members that it changed, as they were ahead of
-- it, null for one that was absent; the action implies the status. Any other
-- transition records both states as JSON, in before and after.
CREATE TABLE audit_log (
    tenant_id       uuid        NOT NULL,
    target_id       uuid        NOT NULL,
    audit_id        bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    quantity        bigint,
    expires_at      timestamptz,
    action          text        NOT NULL,
    actor_kind      text        NOT NULL,
    actor_id        text,
    correlation_id  text,
    reason          text,
    resource_kind   text,
    resource_key    text,
    holder_id       text,
    release_reason  text,
    resource_window text,
    checkout_id     uuid,
    unit_ids        jsonb,
    before          jsonb,
    after           jsonb,
    CONSTRAINT audit_log_pkey PRIMARY KEY (tenant_id, target_id, audit_id),
    CONSTRAINT audit_log_actor_known CHECK (actor_kind IN ('user', 'system', 'job', 'anonymous')),
    CONSTRAINT audit_log_one_state CHECK ((after IS NULL) = (resource_kind IS NOT NULL)
        AND num_nulls(resource_kind, resource_key, holder_id, quantity, expires_at) IN (0, 5)
        AND (resource_kind IS NULL OR jsonb_typeof(before) = 'object')
    )
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX audit_log_id_idx ON audit_log (audit_id);

CREATE INDEX audit_log_created_idx ON audit_log USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);

-- For the history of one unit. Each row is found by its units, its tenant and its
-- block, as a hash, so that units of one name in many blocks are not read for
-- each other.
CREATE INDEX audit_log_units_idx ON audit_log
USING gin ((unit_ids || ('"' || tenant_id::text || '"')::jsonb || hashtextextended(resource_key, 0)::text::jsonb))
WHERE unit_ids IS NOT NULL;

-- The position of each named subscription. Rows up to position are delivered.
-- Rows up to settled are visible, or never will be. next becomes settled once
-- every transaction below next_horizon has ended. Only the process with the lease
-- delivers. The epoch of the lease excludes its earlier owners.
--
-- leased_at is when the lease was last taken or renewed. A lease from the future
-- was taken before the database's clock was set back, and any process may take
-- it over. Otherwise, after the death of its owner, a subscription would wait
-- until the clock has caught up.
CREATE TABLE audit_subscriptions (
    name             text        NOT NULL,
    position         bigint      NOT NULL,
    settled          bigint      NOT NULL,
    next             bigint      NOT NULL,
    next_horizon     xid8        NOT NULL,
    lease_epoch      bigint      NOT NULL DEFAULT 0,
    leased_at        timestamptz NOT NULL DEFAULT '-infinity',
    lease_expires_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    failures         integer     NOT NULL DEFAULT 0,
    last_error       text,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    delivered_at     timestamptz,
    CONSTRAINT audit_subscriptions_pkey PRIMARY KEY (name),
    CONSTRAINT audit_subscriptions_name_length CHECK (char_length(name) BETWEEN 1 AND 64),
    CONSTRAINT audit_subscriptions_in_order CHECK (position <= settled AND settled <= next)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- A lane has one row with slot -1, its controls (pause, rate cap and its token
-- bucket, measured rate), and one row per slot. The lock of a slot's row is the
-- lease of the slot, and its stream has no queued request at or below its
-- low-water mark. Each hot variant has its own slot. The normal lane has slot 0,
-- and slot 1 for diverted tenants.
CREATE TABLE lane_slots (
    lane              text             NOT NULL,
    slot              smallint         NOT NULL,
    low_water         bigint           NOT NULL DEFAULT 0,
    paused            boolean          NOT NULL DEFAULT false,
    rate_cap          integer,
    tokens            double precision NOT NULL DEFAULT 0,
    refilled_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    decided           bigint           NOT NULL DEFAULT 0,
    window_decided    bigint           NOT NULL DEFAULT 0,
    window_started_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    rate              double precision NOT NULL DEFAULT 0,
    CONSTRAINT lane_slots_pkey PRIMARY KEY (lane, slot),
    CONSTRAINT lane_slots_lane_known CHECK (lane IN ('hot', 'normal')),
    CONSTRAINT lane_slots_slot_range CHECK (slot >= -1),
    CONSTRAINT lane_slots_rate_cap_positive CHECK (rate_cap > 0)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

INSERT INTO lane_slots (lane, slot) VALUES ('hot', -1), ('normal', -1), ('normal', 0), ('normal', 1);

-- The number of waiting requests of each lane. One process counted them for all,
-- between counted_at and published_at. drawn is the last sequence number drawn
-- before that. A row may be lost, because the requests are counted again.
CREATE TABLE lane_loads (
    lane         text        NOT NULL,
    drawn        bigint      NOT NULL,
    load         jsonb       NOT NULL,
    counted_at   timestamptz NOT NULL,
    published_at timestamptz NOT NULL,
    CONSTRAINT lane_loads_pkey PRIMARY KEY (lane),
    CONSTRAINT lane_loads_lane_known CHECK (lane IN ('hot', 'normal'))
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- Only its slot decides the requests of a variant listed here. entering: requests
-- admitted before the move may still be in the normal stream. leaving: new
-- requests go to the normal stream, and the slot decides them until its own
-- stream has none of the variant left.
--
-- admitted_before is the last sequence number drawn when a move between the
-- lanes was first seen. The move ends once every admission that began before has
-- ended. why is the reason for which a variant became hot, NULL if it was pinned.
CREATE TABLE hot_variants (
    tenant_id       uuid        NOT NULL,
    variant_id      text        NOT NULL,
    slot            smallint    NOT NULL,
    state           text        NOT NULL DEFAULT 'entering',
    pinned          boolean     NOT NULL DEFAULT false,
    why             text,
    admitted_before bigint,
    moved_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT hot_variants_pkey PRIMARY KEY (tenant_id, variant_id),
    CONSTRAINT hot_variants_state_known CHECK (state IN ('entering', 'hot', 'leaving'))
) WITH (fillfactor = 50);

CREATE INDEX hot_variants_slot_idx ON hot_variants (slot);

-- The arrival rates that each API process measured in its last window: of a
-- variant, of a whole tenant (variant_id ''), and of all tenants (tenant_id
-- zero). A row that is not written again soon does not count any more.
CREATE TABLE hot_signals (
    tenant_id   uuid             NOT NULL,
    variant_id  text             NOT NULL,
    source      uuid             NOT NULL,
    rate        double precision NOT NULL,
    measured_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT hot_signals_pkey PRIMARY KEY (tenant_id, variant_id, source)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- The detector's state of a variant, or of a tenant (variant_id ''), between its
-- passes: since when it has been busy enough to be moved, and since when quiet
-- enough to be moved back.
CREATE TABLE hot_observations (
    tenant_id   uuid             NOT NULL,
    variant_id  text             NOT NULL,
    rate        double precision NOT NULL,
    waiting     integer          NOT NULL,
    busy_since  timestamptz,
    quiet_since timestamptz,
    CONSTRAINT hot_watches_pkey PRIMARY KEY (tenant_id, variant_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- One row. The process that has it locked is the detector. seen is the last
-- sequence number that a pass has read.
CREATE TABLE hot_detector (
    detector integer     NOT NULL DEFAULT 1,
    ran_at   timestamptz NOT NULL DEFAULT '-infinity',
    seen     bigint      NOT NULL DEFAULT 0,
    CONSTRAINT hot_detector_pkey PRIMARY KEY (detector),
    CONSTRAINT hot_detector_one_row CHECK (detector = 1)
) WITH (fillfactor = 10);

INSERT INTO hot_detector DEFAULT VALUES;

-- A tenant listed here floods the normal lane. Its requests for variants that are
-- not hot are admitted to a second stream of the normal lane, in which the other
-- tenants do not wait. The row is a hint to admission. Deleting it moves nothing.
CREATE TABLE diverted_tenants (
    tenant_id   uuid        NOT NULL,
    slot        smallint    NOT NULL,
    why         text        NOT NULL,
    diverted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT diverted_tenants_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT diverted_tenants_slot_positive CHECK (slot > 0)
) WITH (fillfactor = 50);

-- One row per unit with its own identity: a seat, a serial number. position is
-- the order of the units within their block; units with consecutive positions
-- are neighbours. A pending unit belongs to the reservation in reservation_id,
-- and so does an inactive one, for good. Every index is one more entry to write
-- whenever a unit changes hands, so there are only two: a reservation knows the
-- ids of its units, and finds them by primary key.
CREATE TABLE postings (
    tenant_id      uuid        NOT NULL,
    block          text        NOT NULL,
    unit_id        text        NOT NULL,
    position       bigint      NOT NULL,
    status         text        NOT NULL DEFAULT 'active',
    reservation_id uuid,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT postings_pkey PRIMARY KEY (tenant_id, block, unit_id),
    CONSTRAINT postings_status_known CHECK (status IN ('active', 'pending_inactive', 'inactive')),
    CONSTRAINT postings_owned CHECK ((status = 'active') = (reservation_id IS NULL)),
    CONSTRAINT postings_unit_length CHECK (char_length(unit_id) BETWEEN 1 AND 128)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- "Any n units of this block" reads the first n entries.
CREATE INDEX postings_active_idx ON postings (tenant_id, block, position, unit_id) WHERE status = 'active';

-- The write-ahead record of a checkout. holds and units are what the reserve
-- step locked, which is the same transaction as the insert: so no row is ever
-- reserving. callback_url is where the payment is validated, NULL if the shop
-- answers on its own. asked means that a call of the checkout's payment service
-- has ended: a checkout does not time out before that. next_attempt_at is when
-- recovery takes the row next.
CREATE TABLE checkouts (
    tenant_id         uuid        NOT NULL,
    checkout_id       uuid        NOT NULL,
    cart_id           text        NOT NULL,
    payment_reference text        NOT NULL,
    callback_url      text,
    asked             boolean     NOT NULL DEFAULT false,
    status            text        NOT NULL DEFAULT 'validating',
    reason            text,
    alert             text,
    holds             integer     NOT NULL,
    units             bigint      NOT NULL,
    attempt           integer     NOT NULL DEFAULT 0,
    correlation_id    text,
    deadline          timestamptz NOT NULL,
    next_attempt_at   timestamptz NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at          timestamptz,
    CONSTRAINT checkouts_pkey PRIMARY KEY (tenant_id, checkout_id),
    CONSTRAINT checkouts_status_known CHECK (status IN ('validating', 'finalizing', 'committed', 'compensated', 'failed')),
    CONSTRAINT checkouts_ended_once CHECK ((status IN ('validating', 'finalizing')) = (ended_at IS NULL)),
    CONSTRAINT checkouts_reason_given CHECK ((status IN ('compensated', 'failed')) = (reason IS NOT NULL)),
    CONSTRAINT checkouts_alert_known CHECK (alert IN ('paid_too_late', 'stock_lost')),
    CONSTRAINT checkouts_failure_alerted CHECK (status <> 'failed' OR alert IS NOT NULL),
    CONSTRAINT checkouts_holds_positive CHECK (holds > 0 AND units >= holds),
    CONSTRAINT checkouts_attempt_counted CHECK (attempt >= 0)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- A cart has one unfinished checkout.
CREATE UNIQUE INDEX checkouts_cart_once ON checkouts (tenant_id, cart_id) WHERE ended_at IS NULL;

CREATE INDEX checkouts_due_idx ON checkouts (next_attempt_at) WHERE ended_at IS NULL;

CREATE INDEX checkouts_ended_idx ON checkouts (ended_at) WHERE ended_at IS NOT NULL;

-- The present state of each key of each projection. version counts the events
-- in it and the rebuilds. position is the id of the last audit row in it, 0 if
-- its events do not come from the record. Rows are rewritten often, and no index
-- mentions a column that changes, so each page has room for heap-only updates.
-- refused_bytes is what events that could not be folded have cost in successive
-- runs, in bytes of JSON. A parked key is not folded until it is rebuilt: it
-- lacks the events from parked_audit_id on, 0 if they do not come from the
-- record. Its version is 0 if it has no state.
CREATE TABLE projection_snapshots (
    tenant_id       uuid        NOT NULL,
    projection_name text        NOT NULL,
    key             text        NOT NULL,
    state           json        NOT NULL,
    version         bigint      NOT NULL,
    position        bigint      NOT NULL DEFAULT 0,
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    refused_bytes   bigint      NOT NULL DEFAULT 0,
    parked_at       timestamptz,
    parked_audit_id bigint,
    parked_reason   text,
    CONSTRAINT projection_snapshots_pkey PRIMARY KEY (tenant_id, projection_name, key),
    CONSTRAINT projection_snapshots_name_length CHECK (char_length(projection_name) BETWEEN 1 AND 64),
    CONSTRAINT projection_snapshots_key_length CHECK (char_length(key) BETWEEN 1 AND 256),
    CONSTRAINT projection_snapshots_counted CHECK (version >= 0 AND position >= 0 AND refused_bytes >= 0),
    CONSTRAINT projection_snapshots_parked CHECK (num_nulls(parked_at, parked_audit_id, parked_reason) IN (0, 3))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- Tickets that open one live connection each. A ticket has 256 random bits, so
-- its hash is unique without a unique index, which could not begin with the
-- tenant. A ticket that is used is deleted.
CREATE TABLE live_tickets (
    tenant_id  uuid        NOT NULL,
    hash       bytea       NOT NULL,
    key_id     uuid        NOT NULL,
    scopes     text[]      NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT live_tickets_pkey PRIMARY KEY (tenant_id, hash),
    CONSTRAINT live_tickets_hash_length CHECK (octet_length(hash) = 32)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX live_tickets_hash_idx ON live_tickets USING hash (hash);

CREATE INDEX live_tickets_tenant_expires_idx ON live_tickets (tenant_id, expires_at);

CREATE INDEX live_tickets_expires_idx ON live_tickets (expires_at);

-- One row, once a purge has run: requests that were finished before
-- purged_before may be deleted, and rows that belong to them. A retention that
-- is lengthened later does not bring them back.
CREATE TABLE purge_mark (
    mark          integer     NOT NULL DEFAULT 1,
    purged_before timestamptz NOT NULL,
    CONSTRAINT purge_mark_pkey PRIMARY KEY (mark),
    CONSTRAINT purge_mark_one_row CHECK (mark = 1)
) WITH (fillfactor = 10);

-- +goose Down
DROP TABLE purge_mark;

DROP TABLE live_tickets;

DROP TABLE projection_snapshots;

DROP TABLE checkouts;

DROP TABLE postings;

DROP TABLE diverted_tenants;

DROP TABLE hot_detector;

DROP TABLE hot_observations;

DROP TABLE hot_signals;

DROP TABLE hot_variants;

DROP TABLE lane_loads;

DROP TABLE lane_slots;

DROP TABLE audit_subscriptions;

DROP TABLE audit_log;

DROP TABLE reservation_marks;

DROP TABLE reservations;

DROP TABLE reservation_requests;

DROP TABLE allotments;

DROP TABLE waiting_requests;

DROP TABLE kits;

DROP TABLE stock_groups;

DROP TABLE inventory_stocks;

DROP TABLE idempotency_keys;

DROP TABLE api_keys;

DROP TABLE tenant_state;

DROP FUNCTION tenant_fence();

DROP TABLE tenants;

DROP FUNCTION same_key(text, text);

DROP FUNCTION same_holder(uuid, text, uuid, text);

DROP FUNCTION holder_hash(uuid, text);
