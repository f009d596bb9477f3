package requestrows_test

import (
	"testing"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/testkit"
)

var shopper = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-7"}

func newNormal(t testing.TB) *testkit.Fixture {
	t.Helper()
	return testkit.New(t, lanes.Normal)
}

func newHot(t testing.TB) *testkit.Fixture {
	t.Helper()
	return testkit.New(t, lanes.Hot)
}
