// Package testkit has the fixture of the tests that admit requests and decide
// them: a database with a tenant, its lanes and its intakes. Only tests import
// it. [pgtest.Fixture] is the part of it that packages further down use.
package testkit
