// Package client calls the HTTP API for the operator's tool. Its errors are
// written for people: each is one sentence, such as an unreachable service, a
// refused key or a problem.
//
// It knows paths and problems, not what the bodies mean.
package client
