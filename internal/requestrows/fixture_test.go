package requestrows_test

import (
	"testing"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queuestest"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
)

var shopper = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-7"}

func newNormal(t testing.TB) *queuestest.Bench {
	t.Helper()
	return queuestest.New(t, lanes.Normal, normal.NewLane)
}

func newHot(t testing.TB) *queuestest.Bench {
	t.Helper()
	return queuestest.New(t, lanes.Hot, hot.NewLane)
}
