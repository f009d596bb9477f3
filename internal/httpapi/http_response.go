package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
)

// response is the HTTP response of one request.
type response struct {
	status int
	header http.Header // beyond the usual fields; may be nil
	body   []byte
	// stream sends the body in pieces, in place of body, once the header is
	// sent; nil for a body that is sent at once.
	stream func(w http.ResponseWriter)
}

// jsonResponse returns a response with v as its JSON body.
func jsonResponse(status int, v any) response { return response{status: status, body: encode(v)} }

// encode returns v as JSON. Every body of this package can be encoded.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("httpapi: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// with sets a header field of the response and returns it.
func (resp response) with(name, value string) response {
	if resp.header == nil {
		resp.header = http.Header{}
	}
	resp.header.Set(name, value)
	return resp
}

// write sends the response. It ignores errors of the connection, because
// nothing can be sent after them.
func (resp response) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	maps.Copy(h, resp.header)
	if resp.status == http.StatusNotModified || resp.status == http.StatusNoContent {
		h.Del("Content-Type")
		w.WriteHeader(resp.status)
		return
	}
	if resp.stream != nil {
		w.WriteHeader(resp.status)
		resp.stream(w)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(resp.body)))
	w.WriteHeader(resp.status)
	_, _ = w.Write(resp.body)
}
