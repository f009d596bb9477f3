package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/migrations"
)

// readyTimeout is shorter than what probes wait.
const readyTimeout = 2 * time.Second

var errNotReady = errors.New("not ready")

const readyDoc = "The database answers and has every migration, and no variant requires a token that the service would not ask for."

func (s *service) readyz() endpoint[struct{}, none] {
	return s.readiness("readyz", "/readyz", readyDoc)
}

// health is readyz under a path that no platform keeps for itself: Cloud Run reserves some that end in z.
func (s *service) health() endpoint[struct{}, none] {
	return s.readiness("health", "/health", readyDoc+" The same as `/readyz`, for platforms that reserve paths ending in `z`, such as Cloud Run.")
}

func (s *service) readiness(id, path, doc string) endpoint[struct{}, none] {
	return endpoint[struct{}, none]{
		id: id, method: http.MethodGet, path: path, tag: tagService,
		summary:  "Ask whether calls can be served",
		doc:      doc,
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

// ready asks for migrations until all were seen once: they are not taken away under a program that runs. A service that
// asks nobody for a token is not ready while a variant requires one: it would let everybody in.
func (s *service) ready(ctx context.Context) error {
	if !s.migrated.Load() {
		if err := s.requireMigrated(ctx); err != nil {
			return err
		}
		s.migrated.Store(true)
	}
	if s.metering != nil {
		return s.pool.Ping(ctx)
	}
	guarded, err := inventory.AnyGuarded(ctx, s.pool)
	if err == nil && guarded != nil {
		err = fmt.Errorf("variant %q requires an admission token, which nobody is asked for without METERED_COMMANDS_ENABLED", guarded.VariantID)
	}
	return err
}

func (s *service) requireMigrated(ctx context.Context) error {
	pending, err := migrations.Pending(ctx, s.pool)
	if err == nil && !pending && s.metering != nil {
		pending, err = migrations.PendingMetered(ctx, s.pool)
	}
	if err == nil && pending {
		err = errors.New("migrations are pending")
	}
	return err
}
