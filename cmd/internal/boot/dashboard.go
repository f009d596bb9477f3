package boot

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/dashboard"
	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/ops"
)

// dashboardLink is the dashboard's entry on the page at the root.
var dashboardLink = httpapi.Link{Path: dashboard.Path, Title: "The dashboard", Text: "lanes, stocks and holds as they change, with an API key"}

// dashboardURL returns the address of the dashboard with the key in its
// fragment, which a browser does not send to the server. It is empty if
// DASHBOARD is off.
func (p *Program) dashboardURL(api, key string) string {
	if !p.Config.Dashboard {
		return ""
	}
	return api + dashboard.Path + "#key=" + key
}

// addDashboard serves the dashboard's files beside the API, unless DASHBOARD is
// off. They contain no data, so they need no key.
func (a *API) addDashboard() {
	if !a.program.Config.Dashboard {
		return
	}
	api, page := a.handler, a.bodiless(dashboard.Handler())
	a.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dashboard.Serves(r.URL.Path) {
			page.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// overview returns what reads the dashboard's state over the pool.
func (p *Program) overview(db *pgxpool.Pool) func(context.Context, uuid.UUID) (json.RawMessage, error) {
	c := &p.Config
	return ops.NewReader(db, ops.Config{Arrivals: c.Detect.On, Cell: p.cell, Cells: p.overviews}).Read
}
