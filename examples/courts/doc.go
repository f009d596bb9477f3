// Command courts books the courts of a tennis club by the hour, on the reservation
// kernel: the club has a number of courts, and the kernel keeps the bookings. It has no queue and needs no other process.
//
//	make example NAME=courts
package main
