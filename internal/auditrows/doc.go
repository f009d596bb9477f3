// Package auditrows is how audit_log stores the transition of a reservation: in
// typed columns, from which the JSON of both states is made when it is read.
// Package audit, which writes and reads the log, describes the record.
package auditrows
