// Command exported counts the names that a folder's module exports to its
// users, by package, and fails above a maximum.
//
// It counts the exported functions, types, constants and variables, and the
// exported methods of exported types. It leaves out what no other module
// imports: tests, programs, examples, internal packages, and nested modules.
package main
