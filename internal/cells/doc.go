// Package cells is what holds over several databases that are cells, and what
// moves a tenant from one to another while it works.
//
// A cell is one Postgres with everything in it. A tenant lives in the cell whose
// row of tenant_state says active. There is no directory that could disagree
// with it.
//
// # The states of a move
//
// The tenant is active in the old cell and arriving in the new one, which has no
// row yet that a worker could touch. It is moving in the old cell: new requests
// are refused, and what is queued is decided. Then its fence is closed: nothing of
// it changes any more. It is gone in the old cell, and then active in the new
// one. At no time do two cells say active. After a crash the same call continues.
//
// # The fence
//
// A trigger on each table of tenants calls tenant_fence for the rows of this one
// tenant. The function reads the tenant's state with a share lock, so closing the
// fence waits for the transactions that write rows of the tenant, and for no
// others. Tables of tenants that do not move have no trigger.
package cells
