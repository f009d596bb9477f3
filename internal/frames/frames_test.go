package frames_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/frames"
)

// Frames arrive in their order and complete, in notifications that Postgres
// accepts. A frame that is too large arrives without its payload.
func TestEncode(t *testing.T) {
	t.Parallel()
	tenant := uuid.New()
	var sent []frames.Frame
	for i := range int64(300) {
		sent = append(sent, frames.Frame{
			TenantID: tenant, Channel: fmt.Sprintf("projection.test.\"key\" %d", i), Event: "delta", First: i + 1, Version: i + 2,
			Payload: json.RawMessage(fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("ä", int(i)))),
		})
	}
	sent[7].Payload = json.RawMessage(fmt.Sprintf("%q", strings.Repeat("x", 9000)))
	payloads, err := frames.Encode(sent)
	if err != nil {
		t.Fatal(err)
	}
	var got []frames.Frame
	for _, payload := range payloads {
		if len(payload) >= 8000 {
			t.Errorf("a payload has %d bytes", len(payload))
		}
		decoded, err := frames.Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, decoded...)
	}
	want := slices.Clone(sent)
	want[7].Payload = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if none, err := frames.Encode(nil); len(none) != 0 || err != nil {
		t.Errorf("no frames are %q, %v", none, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"", "{}", "[1]", `[{"t":"x"}]`} {
		if _, err := frames.Decode(payload); err == nil {
			t.Errorf("%q is decoded", payload)
		}
	}
}
