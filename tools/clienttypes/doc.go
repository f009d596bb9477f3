// Command clienttypes writes the types of the Go client from docs/openapi.json, with the
// hash of the document in their first line.
//
//	go run -C tools/clienttypes . <docs/openapi.json >client/types.go
//
// oapi-codegen makes the types. What this program changes in the document first
// are the names, and which fields are pointers: null and left out are the zero
// value in what the service answers, where that loses nothing.
package main
