package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// caller calls the API with a tenant's key. Several goroutines may use it until
// the test ends.
type caller struct {
	t        *testing.T
	url, key string
	client   *http.Client
}

// newCaller creates a tenant with a key.
func (c *container) newCaller(address, tenant string) *caller {
	c.t.Helper()
	p := c.start(map[string]string{"DATABASE_URL": c.url}, "holdfast", "keys", "create", "--tenant", tenant, "--create-tenant", "--scopes", "cart,stock,ops")
	p.wait(time.Minute)
	return newCaller(c.t, address, strings.TrimSpace(p.stdout.String()))
}

func newCaller(t *testing.T, address, key string) *caller {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t, address, key, &http.Client{Transport: transport, Timeout: time.Minute}}
}

// call makes one call, with header fields as name, value, name, value, and
// returns the status and the body. Without an answer it returns 0 and the
// reason.
func (c *caller) call(method, path, body string, header ...string) (status int, answer string) {
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// want makes one call, and fails the test unless the answer has that status.
func (c *caller) want(status int, method, path, body string, header ...string) string {
	c.t.Helper()
	got, answer := c.call(method, path, body, header...)
	if got != status {
		c.t.Fatalf("%s %s: %d %s, want %d", method, path, got, answer, status)
	}
	return answer
}

// subscribe opens a live connection (RFC 6455) that lasts until the test ends,
// and subscribes it to a channel with a name of less than 100 bytes.
func (c *caller) subscribe(channel string) {
	c.t.Helper()
	var ticket struct {
		Ticket string `json:"ticket"`
	}
	if err := json.Unmarshal([]byte(c.want(http.StatusCreated, "POST", "/v1/live/tickets", "")), &ticket); err != nil {
		c.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+"/v1/live?ticket="+ticket.Ticket, http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		request.Header.Set(name, value)
	}
	response, err := (&http.Client{}).Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = response.Body.Close() })
	connection, ok := response.Body.(io.Writer)
	if !ok || response.StatusCode != http.StatusSwitchingProtocols {
		c.t.Fatalf("GET /v1/live: %s", response.Status)
	}
	message := `{"subscribe":"` + channel + `"}`
	frame := append([]byte{0x81, 0x80 | byte(len(message)), 0, 0, 0, 0}, message...) // one text frame with a mask of zeros
	if _, err := connection.Write(frame); err != nil {
		c.t.Fatal(err)
	}
}
