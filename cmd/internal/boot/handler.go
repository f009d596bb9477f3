package boot

import (
	"cmp"
	"context"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/telemetry/export"
)

// newHandler makes the handler of the API over the cell. It makes spans around calls only
// where they are exported. stopping ends when the program begins to stop.
func (c *apiCell) newHandler(stopping context.Context, links []httpapi.Link) (http.Handler, error) {
	p := c.program
	handler, err := httpapi.New(stopping, httpapi.Config{
		Version: Version, Client: c.client, Pool: c.calls, Keys: c.keys, Metered: p.Config.Metered.On, Live: c.live(), Overview: p.overview(c.calls),
		Cell: p.cell, Links: links, Metrics: p.publicMetrics(), Log: p.logs.calls(),
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
