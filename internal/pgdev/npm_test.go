//go:build unix

package pgdev

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Machines without Postgres, or without the version in PG_MAJOR, use the
// downloaded package. Each is 23 MB, so this test downloads them only where
// HOLDFAST_TEST_NPM is set. There npm must be installed.
func TestPackage(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_NPM") == "" {
		return
	}
	for major := range releases {
		t.Run(strconv.Itoa(major), func(t *testing.T) {
			t.Setenv("PG_MAJOR", strconv.Itoa(major))
			s := start(t, Options{find: finder{ways: []way{fromPackage}}, Log: t.Output()})
			version := setting(t, connect(t, s.URL("postgres")), "server_version")
			if !strings.HasPrefix(version, strconv.Itoa(major)+".") {
				t.Errorf("the server is %s, want %d", version, major)
			}
		})
	}
}
