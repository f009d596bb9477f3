//go:build holdfastdeps

package internal

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/danielgtaylor/huma/v2"
	_ "github.com/exaring/otelpgx"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/uuid"
	_ "github.com/riverqueue/rivercontrib/otelriver"
	_ "github.com/riverqueue/river/rivertype"
	_ "github.com/robfig/cron/v3"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/sethvargo/go-envconfig"
	_ "go.opentelemetry.io/contrib/exporters/autoexport"
	_ "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	_ "go.opentelemetry.io/otel"
	_ "go.opentelemetry.io/otel/exporters/prometheus"
	_ "go.opentelemetry.io/otel/sdk/metric"
	_ "go.opentelemetry.io/otel/sdk/trace"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "pgregory.net/rapid"
)
