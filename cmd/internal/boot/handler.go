package boot

import (
	"cmp"
	"context"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/holdfast/holdfast/httpapi"
	"github.com/holdfast/holdfast/internal/telemetry/export"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/tenants"
)

// newHandler makes the handler of the API. Spans around calls are made only where they go somewhere. stopping ends when
// the program begins to stop.
func (a *API) newHandler(stopping context.Context, bell *queues.Bell) (http.Handler, error) {
	p := a.program
	keys := tenants.NewAuthenticator(a.keys, tenants.Config{})
	handler, err := httpapi.New(stopping, a.calls, a.intake, a.groups, a.watcher, bell, keys, p.terms(), a.metering(), p.publicMetrics(), p.logs.calls(), httpapi.Limits{})
	if err != nil || !export.TracesAsked() {
		return handler, err
	}
	// a span is named after its route, which the pattern says with its method
	return otelhttp.NewHandler(handler, "http", otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
		return cmp.Or(r.Pattern, r.Method)
	})), nil
}
