// Command tickets sells the seats of one evening to a crowd, with Holdfast as a
// library. Buyers hold seats while they pay. An order is written in the transaction
// that commits its hold, and a payment that fails gives the seats back.
//
//	make example NAME=tickets
package main
