-- +goose Up
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
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT inventory_stocks_pkey PRIMARY KEY (tenant_id, variant_id),
    CONSTRAINT inventory_stocks_variant_length CHECK (char_length(variant_id) BETWEEN 1 AND 128),
    CONSTRAINT inventory_stocks_reserved_not_negative CHECK (reserved >= 0),
    CONSTRAINT inventory_stocks_no_oversell CHECK (reserved <= stock OR backorder OR NOT tracked),
    CONSTRAINT inventory_stocks_ttl_positive CHECK (hold_ttl_seconds > 0),
    CONSTRAINT inventory_stocks_max_positive CHECK (max_per_cart > 0),
    CONSTRAINT inventory_stocks_lane_known CHECK (lane IN ('auto', 'hot', 'normal'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

-- +goose Down
DROP TABLE inventory_stocks;
