package boot

import (
	"cmp"
	"context"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/telemetry/export"
	"github.com/holdfast/holdfast/internal/tenants"
)

// newHandler makes the handler of the API. It makes spans around calls only
// where they are exported. stopping ends when the program begins to stop.
func (a *API) newHandler(stopping context.Context, links []httpapi.Link) (http.Handler, error) {
	p := a.program
	keys := tenants.NewAuthenticator(a.keys, tenants.Config{})
	handler, err := httpapi.New(stopping, httpapi.Config{
		Client: a.client, Pool: a.calls, Keys: keys, Metered: p.Config.Metered.On, Live: a.live(), Overview: p.overview(a.calls),
		Links: links, Metrics: p.publicMetrics(), Log: p.logs.calls(),
	})
	if err != nil || !export.TracesAsked() {
		return handler, err
	}
	// a span is named after its route, which the pattern says with its method
	named := otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return cmp.Or(r.Pattern, r.Method) })
	// A live connection lasts an hour, and its URL has a ticket.
	short := otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != httpapi.LivePath })
	return otelhttp.NewHandler(handler, "http", named, short), nil
}
