package boot

import (
	"net/http"

	"github.com/holdfast/holdfast/queues"
)

func (a *API) newHandler(_ *queues.Bell) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) { tell(rw, 200, "ok\n") })
	return mux, nil
}
