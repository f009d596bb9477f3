// Package migrations owns the schema: River's in the schema "river" first, then
// ours, embedded and applied by goose.
//
// The tables of package metered are a separate set in the folder metered,
// applied only where metered commands are on.
//
// Table names are unqualified and resolve under the connection's search_path.
// There are no triggers and no PL/pgSQL. 00001_schema.sql is the schema of 0.1.0,
// a map of the tables. Until that release it is edited in place; from then on
// migrations are only added. Every constraint and index is named.
package migrations
