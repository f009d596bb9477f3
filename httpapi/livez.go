package httpapi

import (
	"context"
	"net/http"
)

type aliveJSON struct {
	Status string `json:"status" enum:"ok"`
}

func (s *service) livez() endpoint[struct{}, none] {
	return endpoint[struct{}, none]{
		id: "livez", method: http.MethodGet, path: "/livez", tag: tagService,
		summary: "Ask whether the process lives",
		answers: map[int]any{http.StatusOK: aliveJSON{}},
		handle: func(context.Context, *call, *struct{}, *none) (answer, error) {
			return respond(http.StatusOK, aliveJSON{"ok"}), nil
		},
	}
}
