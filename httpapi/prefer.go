package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// waitMax is how long a caller may wait for a request to finish.
const waitMax = 30 * time.Second

// preferredWait is how long the caller prefers to wait (RFC 7240), at most waitMax. What can't be read is ignored, as
// preferences are.
func preferredWait(h http.Header) time.Duration {
	for _, line := range h.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			preference, _, _ = strings.Cut(preference, ";") // parameters
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
			if err != nil {
				return 0
			}
			return min(time.Duration(n)*time.Second, waitMax)
		}
	}
	return 0
}

// seconds writes a duration in whole seconds.
func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
