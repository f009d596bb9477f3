// Package pglog reads the log of a Postgres server, and returns the errors that
// no fault of the storm explains.
//
// An error is explained by its SQLSTATE together with a fault that causes it
// and that lasted then, or had just ended. Bad SQL, violated constraints,
// deadlocks and the like are explained by no fault.
package pglog
