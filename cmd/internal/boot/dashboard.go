package boot

import (
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/dashboard"
	"github.com/holdfast/holdfast/live"
	"github.com/holdfast/holdfast/tenants"
)

// dashboardURL returns the address of the dashboard with the key in its
// fragment, which a browser does not send to the server. It is empty if
// DASHBOARD is off.
func (p *Program) dashboardURL(api, key string) string {
	if !p.Config.Dashboard {
		return ""
	}
	return api + dashboard.Path + "#key=" + key
}

// withDashboard serves the dashboard's files beside the API, unless DASHBOARD
// is off. They contain no data, so they need no key.
func (p *Program) withDashboard(api http.Handler) http.Handler {
	if !p.Config.Dashboard {
		return api
	}
	page := dashboard.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dashboard.Serves(r.URL.Path) {
			page.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// overview reads what the dashboard shows.
func (p *Program) overview(db *pgxpool.Pool) *dashboard.Overview {
	return dashboard.NewOverview(db, dashboard.OverviewConfig{DepthMax: p.Config.Intake.DepthMax, Arrivals: p.Config.Detect.On})
}

// sampledOverview is the channel of the overview.
func (p *Program) sampledOverview(db *pgxpool.Pool) live.Sampled {
	return live.Sampled{Channel: "ops.overview", Scope: tenants.ScopeOps, Sample: p.overview(db).Read}
}
