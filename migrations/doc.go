// Package migrations owns the schema: River's in the schema "river" first, then
// ours, embedded and applied by goose.
//
// The tables of package metered are a separate set in the folder metered,
// applied only where metered commands are on.
//
// Table names are unqualified and resolve under the connection's search_path.
// There are no triggers and no PL/pgSQL. One migration file holds the tables of
// one package; every constraint and index is named.
package migrations
