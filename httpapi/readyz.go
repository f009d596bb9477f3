package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/migrations"
)

// readyTimeout is shorter than what probes wait.
const readyTimeout = 2 * time.Second

var errNotReady = errors.New("not ready")

func (s *service) readyz() endpoint[struct{}, none] {
	return endpoint[struct{}, none]{
		id: "readyz", method: http.MethodGet, path: "/readyz", tag: tagService,
		summary:  "Ask whether calls can be served",
		doc:      "The database answers and has every migration.",
		answers:  map[int]any{http.StatusOK: aliveJSON{}},
		problems: []kind{notReady},
		timeout:  readyTimeout,
		handle: func(ctx context.Context, _ *call, _ *struct{}, _ *none) (answer, error) {
			if err := s.ready(ctx); err != nil {
				return answer{}, fmt.Errorf("%w: %w", errNotReady, err)
			}
			return respond(http.StatusOK, aliveJSON{"ok"}), nil
		},
	}
}

// documentMetrics puts /metrics into the document; its handler is not this package's.
func (s *service) documentMetrics() {
	s.api.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: []string{tagService},
		Summary: "Read the metrics", Description: "In the Prometheus text format.", Security: []map[string][]string{},
		Responses: map[string]*huma.Response{"200": {
			Description: http.StatusText(http.StatusOK),
			Content:     map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}},
	})
}

// ready asks for migrations until all were seen once: they are not taken away under a program that runs.
func (s *service) ready(ctx context.Context) error {
	if s.migrated.Load() {
		return s.pool.Ping(ctx)
	}
	pending, err := migrations.Pending(ctx, s.pool)
	if err != nil {
		return err
	}
	if !pending && s.metering != nil {
		if pending, err = migrations.PendingMetered(ctx, s.pool); err != nil {
			return err
		}
	}
	if pending {
		return errors.New("migrations are pending")
	}
	s.migrated.Store(true)
	return nil
}
