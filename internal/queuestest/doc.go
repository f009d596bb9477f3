// Package queuestest is the suite that both lanes pass. It tests the promises of
// a drain that do not depend on the order of the requests. Only tests import
// it.
package queuestest
