package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/migrations"
)

type aliveJSON struct {
	Status string `json:"status" enum:"ok"`
}

func (s *service) livez() endpoint[struct{}, emptyBody] {
	return endpoint[struct{}, emptyBody]{
		id: "livez", method: http.MethodGet, path: "/livez", tag: tagService,
		summary:   "Check whether the process is alive",
		responses: map[int]any{http.StatusOK: aliveJSON{}},
		handle: func(context.Context, *request, *struct{}, *emptyBody) (response, error) {
			return jsonResponse(http.StatusOK, aliveJSON{"ok"}), nil
		},
	}
}

// readyTimeout is shorter than the timeouts of probes.
const readyTimeout = 2 * time.Second

var errNotReady = errors.New("not ready")

const readyDoc = "The database responds and has every migration, its sequences are not behind its rows, and no variant requires a token that the service would not ask for."

func (s *service) readyz() endpoint[struct{}, emptyBody] {
	return s.readiness("readyz", "/readyz", readyDoc)
}

// health is readyz under a path that no platform reserves. Cloud Run reserves
// some that end in z.
func (s *service) health() endpoint[struct{}, emptyBody] {
	return s.readiness("health", "/health", readyDoc+" The same as `/readyz`, for platforms that reserve paths ending in `z`, such as Cloud Run.")
}

func (s *service) readiness(id, path, doc string) endpoint[struct{}, emptyBody] {
	return endpoint[struct{}, emptyBody]{
		id: id, method: http.MethodGet, path: path, tag: tagService,
		summary:   "Check whether requests can be served",
		doc:       doc,
		responses: map[int]any{http.StatusOK: aliveJSON{}},
		problems:  []kind{notReady},
		timeout:   readyTimeout,
		handle: func(ctx context.Context, _ *request, _ *struct{}, _ *emptyBody) (response, error) {
			if err := s.ready(ctx); err != nil {
				return response{}, fmt.Errorf("%w: %w", errNotReady, err)
			}
			return jsonResponse(http.StatusOK, aliveJSON{"ok"}), nil
		},
	}
}

// documentMetrics adds /metrics to the document. Its handler is not in this
// package.
func (s *service) documentMetrics() {
	s.api.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: []string{tagService},
		Summary: "Read the metrics", Description: "In the Prometheus text format.", Security: []map[string][]string{},
		Responses: map[string]*huma.Response{"200": {
			Description: http.StatusText(http.StatusOK), Headers: map[string]*huma.Header{correlationHeader: headerRef(correlationHeader)},
			Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}},
	})
}

// ready returns why requests can't be served. It checks the migrations until
// all of them were present once, because no migration is undone under a running
// program. While metered commands are off, the service is not ready if a
// variant requires a token: it would admit every caller.
func (s *service) ready(ctx context.Context) error {
	if !s.migrated.Load() {
		if err := s.requireMigrated(ctx); err != nil {
			return err
		}
		s.migrated.Store(true)
	}
	// The programs raise a sequence when they connect. One that is behind was
	// set back since.
	if err := requestrows.CheckSequences(ctx, s.pool); err != nil || s.metered {
		return err
	}
	guarded, err := inventory.FirstRequiringToken(ctx, s.pool)
	if err == nil && guarded != nil {
		err = fmt.Errorf("variant %q requires an admission token, which the service asks for only with METERED_COMMANDS_ENABLED", guarded.VariantID)
	}
	return err
}

func (s *service) requireMigrated(ctx context.Context) error {
	pending, err := migrations.Pending(ctx, s.pool, nil)
	if err == nil && !pending && s.metered {
		pending, err = migrations.Pending(ctx, s.pool, &migrations.Config{Metered: true})
	}
	if err == nil && pending {
		err = errors.New("migrations are pending")
	}
	return err
}
