// This module has no Go code. Its go.mod hides the folder, and the packages that
// npm installs in it, from the go command in the root.
module github.com/holdfast/holdfast/clients/document

go 1.26
