package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
)

// answer is what a call is answered with.
type answer struct {
	status int
	header http.Header // beyond the usual; may be nil
	body   []byte
}

// respond is an answer with v as its JSON body.
func respond(status int, v any) answer { return answer{status: status, body: encode(v)} }

// encode is v as JSON. Everything this package answers with can be encoded.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("httpapi: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// with is the answer with one more header.
func (a answer) with(name, value string) answer {
	if a.header == nil {
		a.header = http.Header{}
	}
	a.header.Set(name, value)
	return a
}

// write sends the answer. What the connection says to it can help nobody any more.
func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	maps.Copy(h, a.header)
	if a.status == http.StatusNotModified || a.status == http.StatusNoContent {
		h.Del("Content-Type")
		w.WriteHeader(a.status)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}
