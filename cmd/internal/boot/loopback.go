package boot

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/holdfast/holdfast/internal/httpapi"
)

// loopback is the only interface that the all-in-one serves, because its key is
// printed.
const loopback = "127.0.0.1"

// onlyLoopback refuses calls for hosts other than this machine's loopback
// names, also the pages and WebSockets. A page of another site can make its own
// name resolve to 127.0.0.1 (DNS rebinding). The browser then lets it read what
// the all-in-one answers, such as the storefront's key, but sends that name as
// Host.
func (a *API) onlyLoopback() {
	inside, refused := a.handler, a.bodiless(httpapi.Misdirected())
	a.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLoopback(r.Host) {
			inside.ServeHTTP(w, r)
			return
		}
		refused.ServeHTTP(w, r)
	})
}

// isLoopback reports whether the Host of a request, with or without a port,
// names the loopback interface: localhost, a name below it, an address of
// 127.0.0.0/8, or ::1.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if address, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return address.Unmap().IsLoopback()
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
