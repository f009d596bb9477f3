// Package sidebyside sells the same products in two ways that keep each other's
// promises: by SELECT … FOR UPDATE on a table of the shop, and with Holdfast. It
// has the code of docs/from-select-for-update.md.
package sidebyside
