// Package client calls the HTTP API for the operator's tool. Its errors are for people: an unreachable service, a refused
// key and a problem each read as one sentence.
//
// It knows paths and problems, not what the bodies mean.
package client
