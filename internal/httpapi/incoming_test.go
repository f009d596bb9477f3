package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// arriving is a body of which some bytes arrive after each pause. It keeps the
// deadline of its connection, as a connection does.
type arriving struct {
	slowBody
	left int
}

func (b *arriving) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.slowBody.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// TestTimeOfABody reads bodies that arrive slowly. The clock is synctest's.
func TestTimeOfABody(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pause  time.Duration
		size   int // bytes after each pause
		length int
		upload time.Duration // in all; 0 is no upload
		want   error
		ends   time.Duration
	}{
		"in time":               {pause: time.Second, size: 10, length: 90, ends: 9 * time.Second},
		"too slow":              {pause: time.Second, size: 10, length: 200, want: os.ErrDeadlineExceeded, ends: 10 * time.Second},
		"an upload":             {pause: time.Second, size: 2 << 10, length: 100 << 10, upload: time.Hour, ends: 50 * time.Second},
		"a slow upload":         {pause: time.Second, size: 100, length: 100 << 10, upload: time.Hour, want: os.ErrDeadlineExceeded, ends: 10 * time.Second},
		"an upload that stalls": {pause: 11 * time.Second, size: 1 << 20, length: 2 << 20, upload: time.Hour, want: os.ErrDeadlineExceeded, ends: 10 * time.Second},
		"an endless upload":     {pause: time.Second, size: 2 << 10, length: 1 << 30, upload: time.Minute, want: os.ErrDeadlineExceeded, ends: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				body := &arriving{slowBody{ResponseRecorder: httptest.NewRecorder(), pause: tc.pause, size: tc.size}, tc.length}
				limits := connections{limits: Limits{}.withDefaults(), onStop: onEnd(t.Context())}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
				r.ContentLength = int64(tc.length)
				c, r := limits.connect(body, r)
				defer c.release()
				if tc.upload != 0 {
					c.body.upload(tc.upload)
				}
				began := time.Now()
				_, err := io.Copy(io.Discard, r.Body)
				if took := time.Since(began); !errors.Is(err, tc.want) || took != tc.ends {
					t.Errorf("read %d bytes in %s, %v; want %s, %v", body.arrived, took, err, tc.ends, tc.want)
				}
			})
		})
	}
}

// TestSlowBodyLeavesTheCallItsTime reads a body that takes longer to arrive than
// the time limit for the work of a call, which begins after it.
func TestSlowBodyLeavesTheCallItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const within = 2 * time.Second
		e := endpoint[struct{}, emptyBody]{
			method: http.MethodPut,
			handle: func(ctx context.Context, _ *request, _ *struct{}, _ *emptyBody) (response, error) {
				deadline, ok := ctx.Deadline()
				if left := time.Until(deadline); !ok || left != within {
					t.Errorf("the call has %s left, want %s", left, within)
				}
				return response{status: http.StatusOK}, nil
			},
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", &slow{text: strings.NewReader("{}"), pause: 3 * within})
		if _, err := e.run(t.Context(), newRequest(httptest.NewRecorder(), r), nil, within); err != nil {
			t.Error(err)
		}
	})
}

// slow pauses before each read.
type slow struct {
	text  io.Reader
	pause time.Duration
}

func (s *slow) Read(p []byte) (int, error) {
	<-time.After(s.pause)
	return s.text.Read(p)
}
