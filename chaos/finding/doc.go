// Package finding collects what a storm must not show: violations of the promises, by the promise they break.
package finding
